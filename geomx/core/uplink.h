// A local server between its two domains: closed LAN rounds go up as its contribution to the WAN's, what comes back
// answers the LAN's members.
#pragma once
#include "aggregator.h"
#include "client.h"

namespace geomx {

class Uplink : public Upstream {
 public:
  Uplink(Side& wan, Client& client, std::function<void()> on_all_left);
  void serve(Aggregator* lan) { lan_ = lan; }

  void offer(uint32_t key, uint32_t part, uint32_t line, uint32_t round, Bytes sum, const MemberSet& in,
             int priority) override;
  Bytes allocate(uint32_t key, uint32_t part, size_t size) override;
  void want(uint32_t key, uint32_t part) override;
  void initial(uint32_t key, uint32_t part, Bytes raw) override;
  void all_left() override;

 private:
  void take(const Frame& frame, bool answers);

  Side& wan_;
  Client& client_;
  Aggregator* lan_ = nullptr;
  std::function<void()> on_all_left_;
};

}  // namespace geomx
