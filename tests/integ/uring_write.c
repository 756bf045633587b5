/* SPDX-License-Identifier: Apache-2.0
 * uring_write.c - writes standard input to the file of the argument through io_uring, as aiofile's
 * caio does for LMCache.  Exit status 77: the kernel refuses io_uring. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <liburing.h>

static char data[1 << 20];

static int write_all(struct io_uring *ring, int fd, size_t len)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int n;

	io_uring_prep_write(sqe, fd, data, (unsigned)len, 0);
	n = io_uring_submit_and_wait(ring, 1);
	if (n < 0)
		return n;
	n = io_uring_wait_cqe(ring, &cqe);
	if (n < 0)
		return n;
	n = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	if (n < 0)
		return n;
	return (size_t)n == len ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	struct io_uring ring;
	size_t len = 0;
	ssize_t n;
	int fd, err;

	if (argc != 2)
		return 2;
	err = io_uring_queue_init(4, &ring, 0);
	if (err) {
		fprintf(stderr, "io_uring: %s\n", strerror(-err));
		return 77;
	}
	while ((n = read(0, data + len, sizeof(data) - len)) > 0)
		len += (size_t)n;
	fd = open(argv[1], O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	err = write_all(&ring, fd, len);
	if (close(fd) && !err)
		err = -errno;
	io_uring_queue_exit(&ring);
	if (err)
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
	return err != 0;
}
