// The access links of all parties, shared by all processes of one host: until when each direction of each link is
// taken. A link that serves first come first served is wholly described by that one number, so processes share a link
// without a lock, and workers of one party that each speak to the WAN queue behind each other as they would at their
// gateway.
#pragma once
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "status.h"

namespace geomx {

// A party's access link and what is between two parties; as geomx.wan.plan resolves a configuration.
struct WanPath {
  double delay_us = 0, jitter_us = 0;  // one way; what is drawn lies evenly within delay +- jitter
  double loss = 0;                     // share of packets
  double burst = 1;                    // packets that are lost together, in the mean
};
struct WanTraceRow {
  uint64_t at_us = 0;  // since the run began
  double bytes_per_s = 0, delay_us = 0, loss = 0;
};
// From then on a party's access link has this share of its rates.
struct WanShare {
  uint32_t party = 0;
  uint64_t at_us = 0;
  double share = 1;
};
enum class LinkSide : uint32_t { up, down };

struct WanShape {
  std::string file;  // of WanLinks; empty: private to this process
  uint32_t party = 0;
  std::vector<double> up_bytes_per_s, down_bytes_per_s;  // by party; 0: no limit
  std::vector<double> queue_bytes;                       // by party: what a link keeps of datagrams before it drops
  std::vector<WanPath> paths;                            // [from * number of parties + to]
  std::vector<WanTraceRow> trace;                        // changes that all links share; each row until the next
  std::vector<WanShare> shares;                          // the same of single links; by time for each party
  uint64_t seed = 1;

  uint32_t num_parties() const { return uint32_t(up_bytes_per_s.size()); }
  const WanPath& path(uint32_t from, uint32_t to) const { return paths[from * num_parties() + to]; }
  const WanTraceRow* row_at(uint64_t since_us) const;
  // Bytes/s of an access link; 0: no limit.
  double rate_at(uint64_t since_us, uint32_t party, LinkSide side) const;
};

class WanLinks {
 public:
  struct Taken {
    uint64_t begin_us, end_us;
  };

  // For one process, or all nodes of a simulation.
  static std::shared_ptr<WanLinks> make(uint32_t num_parties, uint64_t origin_us);
  // A file for others to open; the error names the file.
  static Status create(const std::string& file, uint32_t num_parties, uint64_t origin_us);
  static Status open(const std::string& file, uint32_t num_parties, std::shared_ptr<WanLinks>* out);
  ~WanLinks();

  // The time in which these bytes pass, from `from_us` at the earliest, behind all that was taken before.
  Taken take(uint32_t party, LinkSide side, uint64_t from_us, double bytes, double bytes_per_s);
  uint64_t busy_until_us(uint32_t party, LinkSide side) const;
  uint64_t origin_us() const;  // when the run began: time 0 of a trace

 private:
  struct Table;
  WanLinks() = default;

  Table* table_ = nullptr;
  std::vector<uint64_t> own_;
  size_t mapped_bytes_ = 0;
};

// Loss of packets: independent, or in bursts of a mean length (Gilbert's model: all or nothing is lost in each state).
class LossProcess {
 public:
  bool is_lost(double loss, double burst, std::mt19937_64& random);

 private:
  bool is_bad_ = false;
};

}  // namespace geomx
