// What leaves when, of what waits for one peer.
#include <doctest/doctest.h>

#include "core/policies.h"
#include "core/send_queue.h"

using namespace geomx;

namespace {

Frame of(uint32_t key) {
  Frame frame(FrameKind::push);
  frame.key = key;
  return frame;
}

PartView view_of(uint32_t key, uint32_t part, Direction direction = Direction::up) {
  PartView view;
  view.key = key;
  view.part = part;
  view.num_parts = 3;
  view.direction = direction;
  return view;
}

using Ids = std::vector<std::pair<uint32_t, uint32_t>>;  // keys and parts

// In which order they leave that came in this one and all wait.
Ids order_of(const TurnScheduler& scheduler, const Ids& came) {
  SendQueue queue;
  for (const auto& [key, part] : came) {
    Frame frame = of(key);
    frame.part = part;
    queue.push_ranked(0, std::move(frame), scheduler.rank(view_of(key, part), 0), 0, 0);
  }
  Ids left;
  while (queue.has_ranked()) {
    const Frame frame = queue.pop(0).frame;
    left.emplace_back(frame.key, frame.part);
  }
  return left;
}

}  // namespace

TEST_CASE("what came first leaves first, until the ends of rounds that all members hear of give one order to all") {
  TurnScheduler one{CreditRule()}, other{CreditRule()};
  const Ids came{{1, 0}, {2, 0}, {2, 1}, {3, 2}}, reverse(came.rbegin(), came.rend());
  CHECK(order_of(one, came) == came);
  CHECK(order_of(other, reverse) == reverse);
  const Ids ended{{2, 1}, {3, 2}, {1, 0}, {2, 0}};
  for (const auto& [key, part] : ended)
    for (TurnScheduler* scheduler : {&one, &other}) scheduler->on_answer(view_of(key, part, Direction::down));
  CHECK(order_of(one, came) == ended);
  CHECK(order_of(other, reverse) == ended);
  const Ids with_new{{2, 1}, {1, 0}, {9, 0}};
  CHECK(order_of(one, with_new) == Ids{{9, 0}, {2, 1}, {1, 0}});  // nobody has waited longer
}

TEST_CASE("what a push asked for counts more than its turn, and values leave in the order in which they came") {
  TurnScheduler scheduler{CreditRule()};
  scheduler.on_answer(view_of(1, 0));
  scheduler.on_answer(view_of(2, 0));
  CHECK(scheduler.rank(view_of(1, 0), 0) > scheduler.rank(view_of(2, 0), 0));
  CHECK(scheduler.rank(view_of(1, 0), 0) < scheduler.rank(view_of(2, 0), 1));
  CHECK(scheduler.rank(view_of(1, 0), -1) < scheduler.rank(view_of(2, 0), 0));
  CHECK(scheduler.rank(view_of(1, 0, Direction::down), 0) == scheduler.rank(view_of(2, 0, Direction::down), 0));
}

TEST_CASE("the highest rank leaves first, equals in the order in which they came") {
  SendQueue queue;
  queue.push_ranked(0, of(1), 5, 0, 0);
  queue.push_ranked(0, of(2), 9, 0, 0);
  queue.push_ranked(0, of(3), 5, 0, 0);
  for (uint32_t expected : {2, 1, 3}) {
    CHECK(queue.ranked().front().frame.key == expected);
    CHECK(queue.pop(0).frame.key == expected);
  }
  CHECK(queue.is_empty());
}

TEST_CASE("what trails leaves behind the lossy frames that were given before it, and those alone") {
  SendQueue queue;
  Frame frame;
  queue.push_ranked(1, of(1), 0, 0, 0);
  queue.push_trailing(of(2));
  queue.push_ranked(2, of(3), 0, 0, 0);
  queue.push_ranked(0, of(4), 0, 0, 0);
  CHECK_FALSE(queue.pop_trailing(&frame));
  CHECK(queue.pop(1).frame.key == 1);
  REQUIRE(queue.pop_trailing(&frame));
  CHECK(frame.key == 2);
  CHECK_FALSE(queue.pop_trailing(&frame));
  CHECK(queue.has_lossy());
}

TEST_CASE("a lossy frame waits from when it might have left, and is dropped when it is late") {
  SendQueue queue;
  queue.push_ranked(1, of(1), 0, 100, 0);
  queue.push_ranked(1, of(2), 0, 0, 0);  // waits for ever
  queue.push_trailing(of(3));
  std::vector<uint32_t> dropped;
  const auto note = [&](const Frame& frame) { dropped.push_back(frame.key); };
  queue.drop_late(1000, note);
  CHECK(queue.first_deadline_us() == 0);
  queue.start_waits(1000);
  queue.start_waits(1050);
  CHECK(queue.first_deadline_us() == 1100);
  queue.drop_late(1099, note);
  CHECK(dropped.empty());
  queue.drop_late(1100, note);
  CHECK(dropped == std::vector<uint32_t>{1});
  Frame frame;
  CHECK_FALSE(queue.pop_trailing(&frame));
  CHECK(queue.pop(1).frame.key == 2);
  CHECK(queue.pop_trailing(&frame));
  CHECK(queue.is_empty());
}
