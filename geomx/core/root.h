// What stands above a global server's WAN aggregator: the updater and the weights, or nothing but the sum itself.
#pragma once
#include "aggregator.h"
#include "updater.h"

namespace geomx {

class Root : public Upstream {
 public:
  Root(Side& side, std::function<void()> on_all_left) : side_(side), on_all_left_(std::move(on_all_left)) {}
  void serve(Aggregator* aggregator) { aggregator_ = aggregator; }
  // Configuring is over: null means that values are sums, and no weights are kept.
  void seal(std::unique_ptr<Updater> updater);

  void offer(uint32_t key, uint32_t part, uint32_t line, uint32_t round, Bytes sum, const MemberSet& in,
             int priority) override;
  Bytes allocate(uint32_t key, uint32_t part, size_t size) override;
  void want(uint32_t key, uint32_t part) override;
  void initial(uint32_t key, uint32_t part, Bytes raw) override;
  void all_left() override { on_all_left_(); }
  bool is_top() const override { return true; }
  void gave(uint32_t key, uint32_t part, uint32_t line, const void* values) override;

 private:
  struct Closed {
    uint32_t line, round;
    Bytes sum;
  };
  using PartId = std::pair<uint32_t, uint32_t>;  // (key, part)
  void step(const Key& key, uint32_t part, const Closed& closed);

  Side& side_;
  Aggregator* aggregator_ = nullptr;
  std::unique_ptr<Updater> updater_;
  std::function<void()> on_all_left_;
  bool keeps_weights_ = true;
  std::map<PartId, Bytes> weights_;  // values in sum_type
  // Rounds that closed before the authority's initial value was here: it travels within the credit, what ends
  // configuring doesn't.
  std::map<PartId, std::vector<Closed>> early_;
};

}  // namespace geomx
