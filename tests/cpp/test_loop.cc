// The reactor's promises: order of turns, timers, posting and calling from other threads, a clean end.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/loop.h"

namespace {

using namespace geomx;

TEST_CASE("tasks posted from many threads all run, on the loop's own thread") {
  Loop loop;
  loop.start();
  std::atomic<int> runs{0}, strangers{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        loop.post([&] {
          ++runs;
          if (!loop.is_own_thread()) ++strangers;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(loop.call([] {}));
  CHECK(runs == 4000);
  CHECK(strangers == 0);
}

TEST_CASE("timers fire in order of time, then of making, and not once cancelled") {
  Loop loop;
  std::vector<int> order;
  std::atomic<bool> is_done{false};
  loop.post([&] {
    const uint64_t now = loop.now_us();
    loop.at(now + 3000, [&] { order.push_back(3), is_done = true; });
    loop.at(now + 1000, [&] { order.push_back(1); });
    loop.at(now + 1000, [&] { order.push_back(2); });
    const TimerId never = loop.at(now + 500, [&] { order.push_back(99); });
    loop.cancel(never);
    loop.cancel(never);
    loop.cancel(12345);
  });
  loop.start();
  while (!is_done) std::this_thread::yield();
  loop.stop();
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("a timer is not early, and comes by itself") {
  Loop loop;
  loop.start();
  std::atomic<uint64_t> due{0}, ran{0};
  loop.call([&] {
    due = loop.now_us() + 700;
    loop.at(due, [&] { ran = loop.now_us(); });
  });
  while (ran == 0) std::this_thread::yield();
  CHECK(ran >= due);
  CHECK(ran < due + 10'000'000);  // a busy machine may be late
}

TEST_CASE("a timer may make and cancel timers, in the past too") {
  Loop loop;
  std::atomic<int> runs{0};
  loop.post([&] {
    const TimerId victim = loop.after(2000, [&] { runs += 100; });
    loop.after(100, [&, victim] {
      loop.cancel(victim);
      loop.at(0, [&] { ++runs; });
      loop.at(loop.now_us() - 5, [&] { ++runs; });
    });
  });
  loop.start();
  while (runs < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  loop.stop();
  CHECK(runs == 2);
}

TEST_CASE("the task of the turn's end runs after what the turn did, each turn") {
  Loop loop;
  std::vector<char> order;
  loop.at_turn_end([&] { order.push_back('e'); });
  loop.post([&] { order.push_back('a'); });
  loop.post([&] { order.push_back('b'); });
  loop.start();
  CHECK(loop.call([&] { order.push_back('c'); }));
  loop.stop();
  REQUIRE(order.size() >= 4);
  CHECK(std::string(order.begin(), order.begin() + 2) == "ab");
  CHECK(order.back() == 'e');
}

TEST_CASE("what a turn's end posts runs in a next turn without being woken") {
  Loop loop;
  std::atomic<int> count{0};
  loop.at_turn_end([&] {
    if (count > 0 && count < 5) loop.post([&] { ++count; });
  });
  loop.start();
  loop.post([&] { ++count; });
  while (count < 5) std::this_thread::yield();
  CHECK(count == 5);
}

TEST_CASE("call runs at once on the loop's thread and says when the loop has ended") {
  Loop loop;
  CHECK_FALSE(loop.call([] {}));
  loop.start();
  bool is_inner_run = false;
  CHECK(loop.call([&] { CHECK(loop.call([&] { is_inner_run = true; })); }));
  CHECK(is_inner_run);
  loop.stop();
  CHECK_FALSE(loop.call([] { FAIL("ran after the end"); }));
}

TEST_CASE("call from many threads while the loop stops: each gets an answer") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    Loop loop;
    loop.start();
    std::atomic<int> ran{0}, said_so{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (loop.call([&] { ++ran; })) ++said_so;
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    loop.stop();
    for (std::thread& thread : threads) thread.join();
    CHECK(ran == said_so);
  }
}

}  // namespace
