/* SPDX-License-Identifier: Apache-2.0
 * config.h - the part of upstream's global configuration that C++ programs read. */
#ifndef MOONCAKE_CXX_CONFIG_H
#define MOONCAKE_CXX_CONFIG_H

#include <cstdint>
#include <cstdlib>

namespace mooncake {

struct GlobalConfig {
	/* Bytes of one registration, 0: no limit.  From MC_MAX_MR_SIZE. */
	std::uint64_t max_mr_size = 0;
};

inline GlobalConfig &globalConfig()
{
	static GlobalConfig config = [] {
		GlobalConfig c;
		const char *v = std::getenv("MC_MAX_MR_SIZE");

		if (v)
			c.max_mr_size = std::strtoull(v, nullptr, 0);
		return c;
	}();

	return config;
}

} // namespace mooncake

#endif
