/* SPDX-License-Identifier: Apache-2.0
 * cxx_real_client.cpp - the calls of LMCache's L2 adapter, by four threads.  cxx_real_client MASTER */
#include "real_client.h"
#include "config.h"

#include <cstdio>
#include <thread>

#define CHECK(x)                                                         \
	do {                                                             \
		if (!(x)) {                                              \
			std::fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
			std::exit(1);                                    \
		}                                                        \
	} while (0)

static void work(mooncake::RealClient &c, int n)
{
	std::vector<char> a(100000, char('a' + n)), b(100000);
	const std::string k = "thread" + std::to_string(n);

	for (int i = 0; i < 50; i++) {
		const std::vector<std::string> keys{ k + "-" + std::to_string(i), k + "=" + std::to_string(i) };

		CHECK((c.batch_put_from(keys, { a.data(), a.data() }, { 100000, 5 }) ==
		       std::vector<int>{ 0, 0 }));
		CHECK((c.batch_get_into(keys, { b.data(), a.data() }, { 100000, 100000 }) ==
		       std::vector<std::int64_t>{ 100000, 5 }));
		CHECK(a == b);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	std::unordered_map<std::string, std::string> map{
		{ "local_hostname", "127.0.0.1" }, { "metadata_server", "P2PHANDSHAKE" },
		{ "master_server_address", argv[1] }, { "protocol", "tcp" },
		{ "global_segment_size", "64 MB" }, { "local_buffer_size", "16777216" },
	};
	auto c = mooncake::RealClient::create();
	char buffer[100] = "value";

	CHECK(c->put_from("k", buffer, 5) == -600 && c->isExist("k") == -600);
	CHECK(!c->setup_internal(mooncake::ConfigDict{}).has_value());
	mooncake::ConfigDict bad(map.begin(), map.end());
	bad["global_segment_size"] = "lots";
	CHECK(c->setup_internal(bad).error() == -600);
	bad = mooncake::ConfigDict(map.begin(), map.end());
	bad["protocol"] = "rmda";
	CHECK(c->setup_internal(bad).error() == -600);
	bad["protocol"] = "rdma";
	CHECK(c->setup_internal(bad).has_value() && c->tearDownAll() == 0);
	CHECK(c->setup_internal(mooncake::ConfigDict(map.begin(), map.end())).has_value());

	CHECK(c->put_from("k", buffer, 5) == 0 && c->isExist("k") == 1 && c->isExist("none") == 0);
	CHECK(c->get_into("k", buffer + 50, 50) == 5 && std::string(buffer + 50, 5) == "value");
	CHECK(c->get_into("k", buffer, 4) == -600 && c->get_into("none", buffer, 4) == -704);
	CHECK(c->register_buffer(buffer, 100) == 0 && c->register_buffer(buffer, 100) == 0);
	CHECK(c->register_buffer(reinterpret_cast<void *>(4096), 100) == -600);
	CHECK(c->unregister_buffer(buffer) == 0 && c->unregister_buffer(buffer) == -600);
	CHECK((c->batchIsExist({ "k", "none" }) == std::vector<int>{ 1, 0 }));
	CHECK(c->batchIsExist({}).empty() && c->batch_put_from({}, {}, {}).empty());
	CHECK((c->batch_put_from({ "x", "y" }, { buffer }, { 1, 1 }) == std::vector<int>{ -600, -600 }));
	CHECK(c->remove("k", false) == -706);
	CHECK((c->batchRemove({ "k", "none" }, true) == std::vector<int>{ 0, -704 }));
	CHECK(mooncake::globalConfig().max_mr_size == 4096);

	/* zero bytes store nothing; of a key that occurs twice in a batch, the last one is stored */
	CHECK(c->put_from("empty", buffer, 0) == 0 && c->put_from("empty", nullptr, 0) == 0);
	CHECK((c->batch_put_from({ "empty", "twice", "nowhere", "twice" }, { buffer, buffer, nullptr, buffer + 1 },
				 { 0, 1, 1, 2 }) == std::vector<int>{ -600, 0, -600, 0 }));
	CHECK((c->batchIsExist({ "empty", "twice", "nowhere" }) == std::vector<int>{ 0, 1, 0 }));
	CHECK(c->get_into("twice", buffer + 50, 50) == 2 && std::string(buffer + 50, 2) == "al");

	/* a tenant has its own keys; a NUL byte in a name does not turn one tenant into another */
	map["tenant_id"] = "blue";
	auto blue = mooncake::RealClient::create();
	CHECK(blue->setup_internal(mooncake::ConfigDict(map.begin(), map.end())).has_value());
	CHECK(blue->isExist("twice") == 0 && blue->put_from("twice", buffer, 5) == 0);
	CHECK(c->get_into("twice", buffer + 50, 50) == 2);
	map["tenant_id"] = std::string("blue\0x", 6);
	CHECK(mooncake::RealClient::create()->setup_internal(mooncake::ConfigDict(map.begin(), map.end())).error() == -600);

	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back(work, std::ref(*c), i);
	for (auto &t : threads)
		t.join();
	CHECK(c->tearDownAll() == 0 && c->tearDownAll() == 0 && c->isExist("k") == -600);
	return 0;
}
