// Flows of ours beside others on one bottleneck, over a simulated path.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <queue>
#include <random>

#include "core/datagram_flow.h"

using namespace geomx;

namespace {

constexpr double kBytesPerS = 6.25e6, kQueueBytes = 312'500;  // 50 Mbit/s, a queue of one product
constexpr uint64_t kDelayUs = 25'000;                         // one way
constexpr size_t kPacket = 1500;

// TCP as far as it matters here: acknowledged packet by packet, a window that grows as `grow` says and falls to 0.7 of
// it once a round trip in which something was dropped.
struct Tcp {
  double window = 10, before_cut = 0;
  bool is_slow_start = true;
  uint64_t cut_us = 0, in_flight = 0;
  void on_ack(uint64_t now_us) {
    --in_flight;
    if (is_slow_start) {
      window += 1;
      return;
    }
    // CUBIC (RFC 8312): 0.4 (t - k)^3 + the window before the cut.
    const double t = double(now_us - cut_us) * 1e-6, k = std::cbrt(before_cut * 0.3 / 0.4);
    const double target = 0.4 * std::pow(t - k, 3) + before_cut;
    window += target > window ? (target - window) / window : 0.01 / window;
  }
  void on_loss(uint64_t now_us) {
    --in_flight;
    if (now_us - cut_us < 100'000) return;
    is_slow_start = false;
    cut_us = now_us;
    before_cut = window;
    window = std::max(2.0, 0.7 * window);
  }
};

class Bottleneck {
 public:
  Bottleneck(int ours, int tcps, double loss) : loss_(loss), tcps_(size_t(tcps)) {
    for (int i = 0; i < ours; ++i) {
      senders_.push_back(std::make_unique<DatagramFlow>(
          7, 1472, [this, i](uint8_t, const std::vector<uint8_t>& d) { forward(i, d); }, [](uint8_t, Message) {}));
      receivers_.push_back(std::make_unique<DatagramFlow>(
          7, 1472, [this, i](uint8_t, const std::vector<uint8_t>& d) { push(now_us_ + kDelayUs, i, 1, d); },
          [](uint8_t, Message) {}));
    }
  }

  // Bytes a second that each got: the first `ours` of ours, then the first `tcps` of the others.
  std::vector<double> run(double seconds, int ours, int tcps) {
    const std::map<int, uint64_t> before = passed_;
    const uint64_t end_us = now_us_ + uint64_t(seconds * 1e6);
    while (now_us_ < end_us) {
      now_us_ += 200;
      while (!events_.empty() && events_.top().when_us <= now_us_) {
        const Event event = events_.top();
        events_.pop();
        take(event);
      }
      for (int i = 0; i < ours; ++i) feed(*senders_[size_t(i)]);
      for (auto& receiver : receivers_) receiver->run(now_us_);
      for (int i = 0; i < tcps; ++i) {
        Tcp& tcp = tcps_[size_t(i)];
        while (double(tcp.in_flight) < tcp.window) {
          ++tcp.in_flight;
          if (!enter(kPacket, 100 + i, {})) push(now_us_ + 2 * kDelayUs + 50'000, 100 + i, 2, {});
        }
      }
    }
    std::vector<double> rates;
    for (int i = 0; i < ours; ++i) rates.push_back(double(passed_[i] - before_of(before, i)) / seconds);
    for (int i = 0; i < tcps; ++i) rates.push_back(double(passed_[100 + i] - before_of(before, 100 + i)) / seconds);
    return rates;
  }

 private:
  // kind 0: data, 1: an acknowledgement of ours, 2: TCP learns of a loss, 3: TCP's acknowledgement.
  struct Event {
    uint64_t when_us, order;
    int flow, kind;
    std::vector<uint8_t> datagram;
    bool operator<(const Event& other) const {
      return when_us != other.when_us ? when_us > other.when_us : order > other.order;
    }
  };
  static uint64_t before_of(const std::map<int, uint64_t>& before, int flow) {
    const auto found = before.find(flow);
    return found == before.end() ? 0 : found->second;
  }
  void push(uint64_t when_us, int flow, int kind, const std::vector<uint8_t>& datagram) {
    events_.push({when_us, order_++, flow, kind, datagram});
  }
  bool enter(size_t size, int flow, const std::vector<uint8_t>& datagram) {
    const double waiting = std::max(0.0, busy_us_ - double(now_us_)) * 1e-6 * kBytesPerS;
    if (waiting + double(size) > kQueueBytes) return false;
    busy_us_ = std::max(busy_us_, double(now_us_)) + double(size) / kBytesPerS * 1e6;
    if (std::uniform_real_distribution<double>(0, 1)(random_) < loss_) return flow < 100;
    push(uint64_t(busy_us_) + (flow < 100 ? kDelayUs : 2 * kDelayUs), flow, flow < 100 ? 0 : 3, datagram);
    passed_[flow] += size;
    return true;
  }
  void forward(int flow, const std::vector<uint8_t>& datagram) { enter(datagram.size() + 28, flow, datagram); }
  void take(const Event& event) {
    if (event.kind == 2) return tcps_[size_t(event.flow - 100)].on_loss(now_us_);
    if (event.kind == 3) return tcps_[size_t(event.flow - 100)].on_ack(now_us_);
    const auto packet = parse_packet(event.datagram.data(), event.datagram.size());
    REQUIRE(packet);
    if (event.kind == 0)
      receivers_[size_t(event.flow)]->take_data(*packet, now_us_, now_us_);
    else
      senders_[size_t(event.flow)]->take_ack(*packet, now_us_, now_us_);
  }
  void feed(DatagramFlow& flow) {
    while (flow.room() > 0) {
      Message message;
      message.head = Bytes::copy(std::string(4000, 'x'));
      flow.send(0, message, now_us_);
    }
    flow.run(now_us_);
  }

  double loss_;
  std::mt19937_64 random_{1};
  uint64_t now_us_ = 1'000'000, order_ = 0;
  double busy_us_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<DatagramFlow>> senders_, receivers_;
  std::vector<Tcp> tcps_;
  std::map<int, uint64_t> passed_;
};

}  // namespace

TEST_CASE("beside one that fills the queue until it overflows a flow gets about its half, whoever came first") {
  Bottleneck path(1, 1, 0);
  CHECK(path.run(5, 1, 0)[0] > 0.9 * kBytesPerS);
  path.run(10, 1, 1);
  const std::vector<double> rates = path.run(20, 1, 1);
  CHECK(rates[0] + rates[1] > 0.9 * kBytesPerS);
  CHECK(rates[0] > 0.25 * kBytesPerS);
  CHECK(rates[0] < 0.75 * kBytesPerS);
}

TEST_CASE("two of ours share a path about evenly, when one came late, and whatever is lost by chance") {
  for (double loss : {0.0, 0.01}) {
    Bottleneck path(2, 0, loss);
    path.run(5, 1, 0);
    path.run(15, 2, 0);
    const std::vector<double> rates = path.run(20, 2, 0);
    CHECK(rates[0] + rates[1] > 0.9 * kBytesPerS);
    CHECK(rates[0] > 0.25 * kBytesPerS);
    CHECK(rates[1] > 0.25 * kBytesPerS);
  }
}

TEST_CASE("alone, loss costs what it loses and little more") {
  for (double loss : {0.01, 0.05}) {
    Bottleneck path(1, 0, loss);
    path.run(5, 1, 0);
    CHECK(path.run(20, 1, 0)[0] > (0.93 - loss) * kBytesPerS);
  }
}
