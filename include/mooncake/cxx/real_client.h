/* SPDX-License-Identifier: Apache-2.0
 * real_client.h - upstream's C++ store client, as far as other projects use it (LMCache's L2 adapter),
 * header-only over mcs.h.  C++17; link with -lmooncake_store.
 *
 * One client serves any number of threads; tearDownAll() may be called while others call, which then
 * answer -600.  Results are upstream's: 0 or a count, or its negative error code.  Memory is the caller's
 * and is used during the call only. */
#ifndef MOONCAKE_CXX_REAL_CLIENT_H
#define MOONCAKE_CXX_REAL_CLIENT_H

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../mcs.h"

namespace mooncake {

using ConfigDict = std::unordered_map<std::string, std::string>;

/* The part of std::expected<void, int> that callers use. */
class SetupResult {
public:
	explicit SetupResult(int code = 0) : code_(code) {}
	bool has_value() const { return code_ == 0; }
	explicit operator bool() const { return has_value(); }
	int error() const { return code_; }

private:
	int code_;
};

class RealClient {
public:
	static std::shared_ptr<RealClient> create() { return std::make_shared<RealClient>(); }
	RealClient() = default;
	RealClient(const RealClient &) = delete;
	RealClient &operator=(const RealClient &) = delete;
	~RealClient() { tearDownAll(); }

	/* The keys of upstream's dictionary: local_hostname and metadata_server are required, master_server_address is
	 * master_server_addr, tenant_id says whose keys they are, protocol and rdma_devices (or device_name) are as in
	 * mcs.h ("rpc_only" ignores global_segment_size); others are ignored. */
	SetupResult setup_internal(const ConfigDict &config)
	{
		const std::string host = get(config, "local_hostname", "", "");
		const std::string master = get(config, "master_server_addr", "master_server_address",
					       "127.0.0.1:50051");
		const std::string protocol = get(config, "protocol", "", "tcp");
		const std::string nics = get(config, "rdma_devices", "device_name", "");
		const std::string tenant = get(config, "tenant_id", "", "default");
		std::uint64_t segment = std::uint64_t(16) << 20;
		struct mcs_conf conf;
		mcs_t *s = nullptr;

		/* Strings of mcs.h end at a NUL, so a NUL inside would cut the string. */
		if ((host + master + tenant + protocol + nics).find('\0') != std::string::npos)
			return SetupResult(kInvalidParams);
		if (host.empty() || !config.count("metadata_server") ||
		    !parse_size(get(config, "global_segment_size", "", "16777216"), segment))
			return SetupResult(kInvalidParams);
		mcs_conf_init(&conf);
		conf.hostname = host.c_str();
		conf.master = master.c_str();
		conf.tenant = tenant.c_str();
		conf.protocol = protocol.c_str();
		conf.rdma_devices = nics.c_str();
		conf.segment_size = protocol == "rpc_only" ? 0 : segment;
		int r = mcs_open(&conf, &s);
		if (r < 0)
			return SetupResult(mcs_code(r));
		std::unique_lock<std::shared_mutex> lock(lock_);
		mcs_close(s_);
		s_ = s;
		return SetupResult();
	}

	int tearDownAll()
	{
		std::unique_lock<std::shared_mutex> lock(lock_);

		mcs_close(s_);
		s_ = nullptr;
		return 0;
	}

	int register_buffer(void *buffer, std::size_t size)
	{
		return call([&](mcs_t *s) {
			int r = mcs_register_buffer(s, buffer, size);
			/* On these transports a registration is only recorded. */
			return r == -EEXIST ? 0 : code(r);
		});
	}

	int unregister_buffer(void *buffer)
	{
		return call([&](mcs_t *s) { return code(mcs_unregister_buffer(s, buffer)); });
	}

	/* A value of 0 bytes is not stored. */
	int put_from(const std::string &key, void *buffer, std::size_t size)
	{
		if (!size && !key.empty())
			return call([](mcs_t *) { return 0; });
		return batch_put_from({ key }, { buffer }, { size })[0];
	}

	std::int64_t get_into(const std::string &key, void *buffer, std::size_t size)
	{
		return batch_get_into({ key }, { buffer }, { size })[0];
	}

	int isExist(const std::string &key) { return batchIsExist({ key })[0]; }
	int remove(const std::string &key, bool force = false) { return batchRemove({ key }, force)[0]; }

	/* 0 bytes and nullptr are -600.  Of two items with the same key the last is stored. */
	std::vector<int> batch_put_from(const std::vector<std::string> &keys,
					const std::vector<void *> &buffers,
					const std::vector<std::size_t> &sizes)
	{
		std::vector<int> results(keys.size(), kInvalidParams);

		if (keys.size() != buffers.size() || keys.size() != sizes.size())
			return results;
		std::vector<struct mcs_put_item> items;
		std::vector<struct iovec> iov(keys.size());
		std::vector<std::size_t> from;
		struct mcs_put_opts opts = {};
		for (std::size_t i = 0; i < keys.size(); i++) {
			struct mcs_put_item item = {};

			if (!buffers[i] || !sizes[i])
				continue;
			iov[i] = { buffers[i], sizes[i] };
			item.key = key_of(keys[i]);
			item.iov = &iov[i];
			item.iovcnt = 1;
			items.push_back(item);
			from.push_back(i);
		}
		opts.flags = MCS_PUT_LAST;
		opts.replicas = 1;
		call([&](mcs_t *s) {
			if (!items.empty())
				mcs_put_batch(s, items.data(), unsigned(items.size()), &opts, -1);
			for (std::size_t i = 0; i < items.size(); i++)
				results[from[i]] = int(code(items[i].result));
			return 0;
		});
		return results;
	}

	std::vector<std::int64_t> batch_get_into(const std::vector<std::string> &keys,
						 const std::vector<void *> &buffers,
						 const std::vector<std::size_t> &sizes)
	{
		std::vector<std::int64_t> results(keys.size(), kInvalidParams);

		if (keys.size() != buffers.size() || keys.size() != sizes.size())
			return results;
		std::vector<struct mcs_get_item> items(keys.size());
		std::vector<struct iovec> iov(keys.size());
		for (std::size_t i = 0; i < keys.size(); i++) {
			iov[i] = { buffers[i], sizes[i] };
			items[i].key = key_of(keys[i]);
			items[i].whole = 1;
			items[i].iov = &iov[i];
			items[i].iovcnt = 1;
		}
		call([&](mcs_t *s) {
			mcs_get_batch(s, items.data(), unsigned(items.size()), -1);
			for (std::size_t i = 0; i < keys.size(); i++)
				results[i] = code(items[i].result);
			return 0;
		});
		return results;
	}

	std::vector<int> batchIsExist(const std::vector<std::string> &keys)
	{
		std::vector<int> results(keys.size(), kInvalidParams);
		std::vector<std::uint8_t> present(keys.size());
		std::vector<struct mcs_key> k(keys.size());

		for (std::size_t i = 0; i < keys.size(); i++)
			k[i] = key_of(keys[i]);
		call([&](mcs_t *s) {
			int r = k.empty() ? 0 : mcs_exist(s, k.data(), unsigned(k.size()),
							  present.data(), -1);
			for (std::size_t i = 0; i < keys.size(); i++)
				results[i] = r < 0 ? int(code(r)) : present[i];
			return 0;
		});
		return results;
	}

	std::vector<int> batchRemove(const std::vector<std::string> &keys, bool force = false)
	{
		std::vector<int> results(keys.size(), kInvalidParams);
		std::vector<struct mcs_key> k(keys.size());

		for (std::size_t i = 0; i < keys.size(); i++)
			k[i] = key_of(keys[i]);
		call([&](mcs_t *s) {
			int r = k.empty() ? 0 : mcs_remove_batch(s, k.data(), unsigned(k.size()),
								 force ? MCS_REMOVE_FORCE : 0,
								 results.data(), -1);
			for (std::size_t i = 0; i < keys.size(); i++)
				results[i] = int(code(r < 0 ? r : results[i]));
			return 0;
		});
		return results;
	}

private:
	static constexpr int kInvalidParams = -600;

	static struct mcs_key key_of(const std::string &key)
	{
		return { key.data(), key.size() };
	}

	static std::int64_t code(std::int64_t r)
	{
		if (r >= 0)
			return r;
		return r == -ENOBUFS || r == -EINVAL ? kInvalidParams : mcs_code(int(r));
	}

	/* The value under the first of two names that exists. */
	static std::string get(const ConfigDict &config, const char *name, const char *alias,
			       const char *fallback)
	{
		auto found = config.find(name);

		if (found == config.end() && *alias)
			found = config.find(alias);
		return found == config.end() ? fallback : found->second;
	}

	/* "4gb", "512 MB", "16777216". */
	static bool parse_size(const std::string &text, std::uint64_t &ret)
	{
		static const char units[] = "kmgt";
		char *end;
		double v = std::strtod(text.c_str(), &end);
		unsigned shift = 0;

		while (*end == ' ')
			end++;
		for (unsigned i = 0; *end && units[i]; i++)
			if ((*end | 0x20) == units[i])
				shift = 10 * (i + 1);
		if (shift)
			end++;
		if ((*end | 0x20) == 'b')
			end++;
		if (end == text.c_str() || *end || !(v >= 0) || v * double(1ull << shift) >= 9e18)
			return false;
		ret = std::uint64_t(v * double(1ull << shift));
		return true;
	}

	template <typename F> int call(F f)
	{
		std::shared_lock<std::shared_mutex> lock(lock_);

		return s_ ? int(f(s_)) : kInvalidParams;
	}

	std::shared_mutex lock_;
	mcs_t *s_ = nullptr;	/* with the lock held */
};

} // namespace mooncake

#endif
