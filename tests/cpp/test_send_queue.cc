// What leaves when, of what waits for one peer.
#include <doctest/doctest.h>

#include "core/send_queue.h"

using namespace geomx;

namespace {

Frame of(uint32_t key) {
  Frame frame(FrameKind::push);
  frame.key = key;
  return frame;
}

}  // namespace

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
