// Room 3: values -> encoded parts, ranked and classed. Where a codec looks at a whole tensor or shard, or a transport
// classes the parts of a shard against each other, the lane holds parts back until all of them are there. Keeps what
// the network did not deliver: in the codec's residual, or in one of its own for codecs that have none.
//
// Parameters go down through a codec that carries differences as values minus what the receivers have: their base. The
// lane keeps it, bit for bit as the receivers' clients do (client.h), and adds to it what the encoded difference
// decodes to; so what a round leaves out is in the next round's difference. The first values of a part travel whole and
// become the base. Receivers that get the same values share a line; where each member's rounds close by themselves,
// each has a line of its own, with a slot and a base. Knows no sockets.
#pragma once
#include <map>
#include <set>
#include <unordered_map>

#include "per_key.h"
#include "side.h"

namespace geomx {

struct Encoded {
  uint32_t key = 0, part = 0, round = 0;
  Bytes bytes;
  uint32_t codec = 0;
  PartClass service;
  int64_t rank = 0;
  int32_t priority = 0;  // that travels with it
};

class Lane {
 public:
  // `own_server`: a server's lane down holds only that server's parts; kNobody: all parts.
  Lane(Side& side, Direction direction, uint32_t own_server);

  // One part's values for a round, in sum_type; parts of the same line that can leave now are appended to `out`.
  void offer(uint32_t key, uint32_t part, uint32_t round, Bytes values, int priority, std::vector<Encoded>* out,
             uint32_t line = 0);
  // The part is on its way to the line's receivers.
  void sent(const Encoded& encoded, uint32_t line);
  // What the line's receivers have of a part whose differences are sent, in sum_type and not to be kept; empty: nothing
  // yet. They have it without a round: `values` is what they got.
  const Bytes& base(uint32_t key, uint32_t part, uint32_t line);
  void set_base(uint32_t key, uint32_t part, uint32_t line, const Bytes& values);
  // A contribution that was not applied: its mass must not be lost.
  void give_back(const Frame& contribution);
  // For tests: what stayed here of a part, in sum_type; empty if nothing.
  Bytes residual(uint32_t key, uint32_t part) const;
  Slot* slot(uint32_t key);

 private:
  struct Waiting {
    uint32_t round = 0, missing = 0;
    std::map<uint32_t, std::pair<Bytes, int>> values;  // part -> values, priority
  };
  struct Line {
    std::unique_ptr<Slot> slot;
    std::unordered_map<uint32_t, Waiting> groups;
    std::unordered_map<uint32_t, Bytes> bases;  // part -> what the receivers have
    std::set<uint32_t> is_new;                  // parts whose base is still to be sent
  };
  struct State {
    std::map<uint32_t, Line> lines;
    std::unordered_map<uint32_t, Bytes> residuals;  // part -> what a lossless codec's parts lost
  };
  bool gathers(const Key& key) const;
  bool same_group(const Key& key, uint32_t part, uint32_t other) const;
  uint32_t group_of(const Key& key, uint32_t part) const;
  uint32_t group_size(const Key& key, uint32_t part) const;
  bool is_delta(const Key& key) const { return direction_ == Direction::down && key.is_delta(side_.tier); }
  Line& line_of(const Key& key, uint32_t line);
  double* encode_seconds(const Key& key) const;
  Bytes with_residual(State& state, const Key& key, uint32_t part, Bytes values);
  Bytes against_base(const Key& key, Line& line, uint32_t part, const Bytes& values) const;
  void encode_group(const Key& key, Line& line, const Waiting& group, std::vector<Encoded>* out);
  Status classify(const Key& key, State& state, std::vector<Encoded>* out, size_t first);
  Status coarsen(const Key& key, State& state, Encoded* encoded);
  Bytes& residual_of(State& state, const Key& key, uint32_t part);
  bool classifies() const { return direction_ == Direction::up && side_.policies.transport->classifies(); }
  bool encode(const Key& key, Line& line, uint32_t part, uint32_t round, const Bytes& values, int priority,
              std::vector<Encoded>* out);
  Status encode_part(const Key& key, Line& line, const PartView& view, const Bytes& values, Encoded* encoded);

  Side& side_;
  Direction direction_;
  uint32_t own_server_;
  PerKey<State> states_;
};

}  // namespace geomx
