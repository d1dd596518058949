// What one node sent and did. Bytes are counted where messages leave, each once, by the sender.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codec.h"

namespace geomx {

// What was done for one key in one tier; seconds by direction.
struct KeyWork {
  double encode_s[2] = {0, 0}, decode_s[2] = {0, 0};
  uint64_t dropped_parts = 0;   // late or double when they came, or too late to leave
  uint64_t returned_parts = 0;  // left here and were not applied: what they carried went back into a residual
};

struct TierCounters {
  uint64_t up_bytes = 0, down_bytes = 0;  // headers and framing included, initial values not
  uint64_t up_payload_bytes = 0, down_payload_bytes = 0;
  std::map<uint32_t, uint64_t> up_payload_by_codec, down_payload_by_codec;  // wire id -> bytes: their parts
  uint64_t init_bytes = 0;     // frames that carry, answer or ask for initial values
  uint64_t control_bytes = 0;  // everything that belongs to no tensor
  uint64_t messages = 0;
  uint64_t dropped_parts = 0;                       // late, double, or too late to leave: not applied
  uint64_t missing_parts = 0;                       // contributions that rounds closed without
  uint64_t classed_parts = 0, droppable_parts = 0;  // sent by a transport that classes them
  // Contributions that this node added to sums; that servers answered to this node to be in, and reliable ones that
  // they answered not to be in: so the first two agree over all nodes, and of the third there is none.
  uint64_t added_parts = 0, applied_parts = 0, lost_reliable_parts = 0;
  double sent_mass = 0, returned_mass = 0;  // magnitudes of what was classed; of what was not applied in its round
  uint64_t refused_frames = 0;              // malformed, unknown or from strangers
  std::vector<KeyWork> keys;                // by a known key's number; may be shorter than there are keys

  KeyWork& of_key(uint32_t key) {
    if (key >= keys.size()) keys.resize(size_t(key) + 1);
    return keys[key];
  }
};

struct Counters {
  TierCounters tier[2];
  uint64_t rounds = 0;
  double encode_s = 0, decode_s = 0, update_s = 0;

  TierCounters& of(Tier t) { return tier[size_t(t)]; }
};

}  // namespace geomx
