// Measures what the shaper makes of a path, through real sockets, on threads of its own: the self-test beside a run's
// result.
#pragma once
#include "status.h"
#include "wan_links.h"

namespace geomx {

struct ProbeResult {
  double bytes_per_s = 0;  // IP packets, as the rates are given
  double delay_us = 0;     // one way: half of the median round trip
};

// From one party to another. Takes about the time that `bulk_bytes` and the pings need on that path; gives up after
// timeout_us.
Status probe_shaper(const WanShape& shape, uint32_t from, uint32_t to, size_t bulk_bytes, uint32_t pings,
                    uint64_t timeout_us, ProbeResult* out);

}  // namespace geomx
