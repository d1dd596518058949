// What one link sent to one peer, item by item: the rows of a ledger. Lives on the node's reactor.
#pragma once
#include <cstdint>
#include <vector>

namespace geomx {

// Which counter a frame's bytes belong to.
enum class Account : uint8_t { up, down, init, control };
constexpr uint32_t kNoKey = 0xffffffff;

struct Flow {
  uint32_t key = kNoKey;  // kNoKey: belongs to no tensor, or to several: headers and framing of messages
  Account account = Account::control;
  uint32_t codec = 0;   // wire id; 0: bytes that no codec made
  uint64_t frames = 0;  // 0 for what messages cost themselves
  uint64_t payload_bytes = 0, framing_bytes = 0;
};

class Flows {
 public:
  void add(const Flow& flow) {
    // A key has one codec a direction, so its list is as short as there are accounts. A number beyond all sense, passed
    // on for somebody else, must not cost memory.
    const size_t at = flow.key < kMostKeys ? size_t(flow.key) + 1 : 0;
    if (at >= by_key_.size()) by_key_.resize(at + 1);
    for (Flow& known : by_key_[at]) {
      if (known.account != flow.account || known.codec != flow.codec) continue;
      known.frames += flow.frames;
      known.payload_bytes += flow.payload_bytes;
      known.framing_bytes += flow.framing_bytes;
      return;
    }
    by_key_[at].push_back(flow);
    if (at == 0) by_key_[at].back().key = kNoKey;
  }
  void add(const Flows& others) {
    others.for_each([this](const Flow& flow) { add(flow); });
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& flows : by_key_)
      for (const Flow& flow : flows) visit(flow);
  }

 private:
  static constexpr uint32_t kMostKeys = 1u << 20;
  std::vector<std::vector<Flow>> by_key_;  // [0]: of no key
};

}  // namespace geomx
