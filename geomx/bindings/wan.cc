// The user-space shaper: what shapes a node, and the probe that measures it.
#include "core/shaper_probe.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

// Rows of numbers, as geomx.wan.plan makes them.
WanShape wan_shape(const std::string& file, uint32_t party, const std::vector<double>& up,
                   const std::vector<double>& down, const std::vector<double>& queue_bytes,
                   const std::vector<std::vector<double>>& paths, const std::vector<std::vector<double>>& trace,
                   const std::vector<std::vector<double>>& shares, uint64_t seed) {
  WanShape shape;
  shape.file = file;
  shape.party = party;
  shape.up_bytes_per_s = up;
  shape.down_bytes_per_s = down;
  shape.queue_bytes = queue_bytes;
  shape.seed = seed;
  for (const std::vector<double>& path : paths) {
    if (path.size() != 4) refuse("WanShape: a path is (delay_us, jitter_us, loss, burst)");
    shape.paths.push_back({path[0], path[1], path[2], path[3]});
  }
  for (const std::vector<double>& row : trace) {
    if (row.size() != 4) refuse("WanShape: a row of a trace is (at_us, bytes_per_s, delay_us, loss)");
    shape.trace.push_back({uint64_t(row[0]), row[1], row[2], row[3]});
  }
  const size_t n = up.size();
  for (const std::vector<double>& row : shares) {
    if (row.size() != 3 || row[0] < 0 || row[0] >= double(n)) refuse("WanShape: a share is (party, at_us, share)");
    shape.shares.push_back({uint32_t(row[0]), uint64_t(row[1]), row[2]});
  }
  if (party >= n || down.size() != n || queue_bytes.size() != n || shape.paths.size() != n * n)
    refuse("WanShape: rates and queues of all parties and paths between all of them are needed");
  return shape;
}

}  // namespace

void bind_wan(nb::module_& m) {
  nb::class_<WanShape>(m, "WanShape")
      .def(
          "__init__",
          [](WanShape* self, const std::string& file, uint32_t party, const std::vector<double>& up,
             const std::vector<double>& down, const std::vector<double>& queue_bytes,
             const std::vector<std::vector<double>>& paths, const std::vector<std::vector<double>>& trace,
             const std::vector<std::vector<double>>& shares, uint64_t seed) {
            new (self) WanShape(wan_shape(file, party, up, down, queue_bytes, paths, trace, shares, seed));
          },
          nb::kw_only(), "file"_a, "party"_a, "up"_a, "down"_a, "queue_bytes"_a, "paths"_a, "trace"_a, "shares"_a,
          "seed"_a);
  m.def(
      "make_wan_links",
      [](const std::string& file, uint32_t num_parties) {
        const uint64_t now_us = uint64_t(
            std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
                .count());
        if (Status status = WanLinks::create(file, num_parties, now_us); !status.ok()) refuse(status.message());
      },
      "file"_a, "num_parties"_a);
  m.def(
      "probe_wan_shape",
      [](const WanShape& shape, uint32_t from, uint32_t to, size_t bulk_bytes, uint32_t pings, double timeout_s) {
        ProbeResult result;
        Status status;
        {
          const nb::gil_scoped_release nogil;
          status = probe_shaper(shape, from, to, bulk_bytes, pings, microseconds(timeout_s), &result);
        }
        if (!status.ok()) raise({false, Fault::timeout, status.message()});
        return std::pair<double, double>(result.bytes_per_s, result.delay_us);
      },
      "shape"_a, "from_party"_a, "to_party"_a, "bulk_bytes"_a, "pings"_a, "timeout_s"_a);
}

}  // namespace geomx
