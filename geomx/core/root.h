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
  Side& side_;
  Aggregator* aggregator_ = nullptr;
  std::unique_ptr<Updater> updater_;
  std::function<void()> on_all_left_;
  bool keeps_weights_ = true;
  std::map<std::pair<uint32_t, uint32_t>, Bytes> weights_;  // (key, part) -> values in sum_type
};

}  // namespace geomx
