// What a node counted: counters, ledger and timeline.
#include <algorithm>
#include <charconv>

#include "node.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

// Words and numbers with a blank between them, in lines. A stream's formatting takes several times as long.
class Lines {
 public:
  Lines& word(std::string_view text) {
    if (!at_begin_) text_ += ' ';
    at_begin_ = false;
    text_ += text;
    return *this;
  }
  Lines& number(int64_t value) {
    char digits[20];
    return word({digits, size_t(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)});
  }
  void end() {
    text_ += '\n';
    at_begin_ = true;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool at_begin_ = true;
};

}  // namespace

std::map<std::string, double> PyNode::counters() {
  return named(ask<Counters>([](Node& node) { return node.counters(); }));
}

// Taken in one turn, so that the items add up to the counters.
nb::dict PyNode::ledger() {
  struct Taken {
    Counters counters;
    std::vector<Node::Item> items;
    std::map<uint32_t, std::string> keys;
  };
  const Taken taken = ask<Taken>([](Node& node) {
    Taken t{node.counters(), node.items(), {}};
    for (const TierCounters& tier : t.counters.tier)
      for (uint32_t key = 0; key < tier.keys.size(); ++key) t.keys[key] = node.key_name(key);
    return t;
  });
  const char* const accounts[] = {"up", "down", "init", "control"};
  nb::list sent, work;
  for (const Node::Item& item : taken.items)
    sent.append(nb::make_tuple(tier_word(item.tier), item.to, item.key, accounts[size_t(item.flow.account)],
                               item.flow.codec ? codec_word(item.flow.codec) : "", item.flow.frames,
                               item.flow.payload_bytes, item.flow.framing_bytes));
  for (Tier tier : {Tier::lan, Tier::wan}) {
    const auto& keys = taken.counters.tier[size_t(tier)].keys;
    for (uint32_t key = 0; key < keys.size(); ++key)
      work.append(nb::make_tuple(tier_word(tier), taken.keys.at(key), keys[key].encode_s[0], keys[key].encode_s[1],
                                 keys[key].decode_s[0], keys[key].decode_s[1], keys[key].dropped_parts,
                                 keys[key].returned_parts));
  }
  nb::dict out;
  out["counters"] = nb::cast(named(taken.counters));
  out["sent"] = sent;
  out["work"] = work;
  return out;
}

std::map<std::string, double> PyNode::named(const Counters& c) {
  std::map<std::string, double> out{{"rounds", double(c.rounds)},
                                    {"encode_s", c.encode_s},
                                    {"decode_s", c.decode_s},
                                    {"update_s", c.update_s},
                                    {"refused_frames", 0}};
  for (size_t tier = 0; tier < 2; ++tier) {
    const TierCounters& t = c.tier[tier];
    const std::string prefix = tier ? "wan." : "lan.";
    out[prefix + "up_bytes"] = double(t.up_bytes);
    out[prefix + "down_bytes"] = double(t.down_bytes);
    out[prefix + "up_payload_bytes"] = double(t.up_payload_bytes);
    out[prefix + "down_payload_bytes"] = double(t.down_payload_bytes);
    for (const auto& [id, bytes] : t.up_payload_by_codec)
      out[prefix + "up_payload_bytes." + codec_word(id)] = double(bytes);
    for (const auto& [id, bytes] : t.down_payload_by_codec)
      out[prefix + "down_payload_bytes." + codec_word(id)] = double(bytes);
    out[prefix + "init_bytes"] = double(t.init_bytes);
    out[prefix + "control_bytes"] = double(t.control_bytes);
    out[prefix + "messages"] = double(t.messages);
    out[prefix + "dropped_parts"] = double(t.dropped_parts);
    out[prefix + "missing_parts"] = double(t.missing_parts);
    out[prefix + "classed_parts"] = double(t.classed_parts);
    out[prefix + "droppable_parts"] = double(t.droppable_parts);
    out[prefix + "added_parts"] = double(t.added_parts);
    out[prefix + "applied_parts"] = double(t.applied_parts);
    out[prefix + "lost_reliable_parts"] = double(t.lost_reliable_parts);
    out[prefix + "sent_mass"] = t.sent_mass;
    out[prefix + "returned_mass"] = t.returned_mass;
    out["refused_frames"] += double(t.refused_frames);
  }
  for (const auto& [name, value] : ask<std::map<std::string, double>>([](Node& node) { return node.figures(); }))
    out[name] += value;
  for (const auto& [name, value] : ask<std::map<std::string, double>>([](Node& node) { return node.metrics(); }))
    out[name] += value;
  return out;
}

// The reactor only hands its spans over, and then the names that they use: a second of small tensors is hundreds of
// thousands of spans.
std::string PyNode::take_trace() {
  struct Taken {
    std::vector<TraceEvent> events;
    uint64_t num_dropped = 0;
  };
  const Taken taken = ask<Taken>([](Node& node) {
    Taken t;
    t.events = node.trace().take();
    t.num_dropped = node.trace().num_dropped();
    return t;
  });
  std::map<uint32_t, std::string> keys;
  std::map<std::pair<Tier, uint32_t>, std::string> peers;
  {
    const nb::gil_scoped_release nogil;
    std::vector<uint32_t> used;
    used.reserve(taken.events.size());
    for (const TraceEvent& e : taken.events) {
      used.push_back(e.key);
      if (e.peer != kNobody) peers[{e.tier, e.peer}];
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (uint32_t key : used) keys.emplace_hint(keys.end(), key, "");
  }
  ask<bool>([&](Node& node) {
    for (auto& [index, name] : keys) name = node.key_name(index);
    for (auto& [peer, name] : peers) name = node.peer_name(peer.first, peer.second);
    return true;
  });
  const nb::gil_scoped_release nogil;
  Lines lines;
  for (const auto& [index, name] : keys) lines.word("key").number(index).word(in_one_line(name)).end();
  for (const auto& [peer, name] : peers)
    lines.word("peer").word(tier_word(peer.first)).number(peer.second).word(in_one_line(name)).end();
  const char* const kinds[] = {"encode", "queue", "receive", "merge", "open", "update", "decode"};
  for (const TraceEvent& e : taken.events)
    lines.word("span")
        .word(kinds[size_t(e.kind)])
        .word(tier_word(e.tier))
        .word(direction_word(e.direction))
        .number(e.peer == kNobody ? int64_t(-1) : int64_t(e.peer))
        .number(e.key)
        .number(e.part)
        .number(e.round)
        .number(e.begin_ns)
        .number(e.end_ns)
        .end();
  if (taken.num_dropped) lines.word("dropped").number(int64_t(taken.num_dropped)).end();
  return lines.take();
}

std::map<std::string, std::string> PyNode::addresses() {
  return ask<std::map<std::string, std::string>>([](Node& node) {
    std::map<std::string, std::string> out;
    for (Tier tier : {Tier::lan, Tier::wan})
      if (const std::string address = node.address(tier); !address.empty()) out[tier_word(tier)] = address;
    return out;
  });
}

}  // namespace geomx
