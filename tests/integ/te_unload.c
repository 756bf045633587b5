/* SPDX-License-Identifier: Apache-2.0
 * te_unload.c - a program that loads the libraries, uses them, and unloads them: threads and a
 * signal handler that are left still have their code. */
#include "te_pair.h"

#include <dlfcn.h>

#ifdef __SANITIZE_ADDRESS__
/* LeakSanitizer cannot scan the library's memory after it was unloaded. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}
#endif

static void *load(const char *path, int flags)
{
	const char *dir = getenv("top_builddir");
	char at[4096];

	snprintf(at, sizeof(at), "%s/%s", dir ? dir : ".", path);
	return dlopen(at, RTLD_NOW | flags);
}

static void function(void *library, const char *name, void *ret)
{
	void *at = dlsym(library, name);

	CHECK(at);
	memcpy(ret, &at, sizeof(at));
}

/* An engine that has requested a graceful shutdown, and was destroyed before the signal arrives. */
static void use_engine(const char *path)
{
	transfer_engine_t (*create)(const char *, const char *, const char *, uint64_t, int);
	void *library = load(path, 0);
	void (*destroy)(transfer_engine_t);
	int (*graceful)(transfer_engine_t);
	transfer_engine_t e;

	CHECK(library);
	function(library, "createTransferEngine", &create);
	function(library, "destroyTransferEngine", &destroy);
	function(library, "enableGracefulShutdown", &graceful);
	e = create("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	CHECK(e && graceful(e) == 0);
	destroy(e);
	CHECK(dlclose(library) == 0);
	raise(SIGINT);
	for (;;)
		pause();
}

int main(void)
{
	static const char engine[] = "engine/.libs/libtransfer_engine.so";
	static const char store[] = "client/.libs/libmooncake_store.so";
	void *library;
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		alarm(20);
		/* A background job may have inherited SIG_IGN. */
		signal(SIGINT, SIG_DFL);
		use_engine(engine);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
	/* A thread may still be resolving a host name in the library. */
	library = load(store, 0);
	CHECK(library && dlclose(library) == 0);
	CHECK(load(store, RTLD_NOLOAD));
	return 0;
}
