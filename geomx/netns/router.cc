// geomx-router: network namespaces, one a party, and the WAN between them, packet by packet. Started by
// geomx.wan.router; everything ends with it, and it ends with its standard input.
//
// Standard input, a line each (numbers as geomx.wan.plan makes them; parties count from 0):
//   party NAME UP_BYTES_PER_S DOWN_BYTES_PER_S QUEUE_BYTES
//   path FROM TO DELAY_US JITTER_US LOSS BURST
//   trace AT_US BYTES_PER_S DELAY_US LOSS
//   share INDEX AT_US SHARE
//   priorities | congestion NAME | seed N
//   start               -> {"namespaces": [fd, ...], "congestion": NAME}: join one by /proc/<our pid>/fd/<fd>
// and then, any number of times:
//   counters            -> {"wall_s": ..., "cpu_s": ..., "links": [...]}
// An error is {"error": SENTENCE}, and the end. Party i has the address 10.9.0.(i + 1).
#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>

#include "emulator.h"
#include "tun.h"

namespace geomx {
namespace {

constexpr uint32_t kFirstAddress = 0x0a090001;  // 10.9.0.1
constexpr uint64_t kTickNs = 500'000;           // while packets are under way: how late one may be noticed
constexpr size_t kMaxPacket = 2048;
constexpr int kMaxReads = 512;  // of one device in a turn

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

double cpu_s() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int fail(const std::string& why) {
  std::string quoted;
  for (const char c : why) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  std::cout << "{\"error\": \"" << quoted << "\"}" << std::endl;
  return 1;
}

struct Settings {
  std::vector<std::string> names;
  WanShape shape;
  bool has_priorities = false;
  std::string congestion;

  // False: not a line of ours.
  bool take(const std::string& line) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    if (word == "party") {
      double up, down, queue;
      in >> names.emplace_back() >> up >> down >> queue;
      shape.up_bytes_per_s.push_back(up);
      shape.down_bytes_per_s.push_back(down);
      shape.queue_bytes.push_back(queue);
      shape.paths.assign(names.size() * names.size(), {});
    } else if (word == "path") {
      uint32_t from, to;
      WanPath path;
      in >> from >> to >> path.delay_us >> path.jitter_us >> path.loss >> path.burst;
      if (!in || from >= names.size() || to >= names.size()) return false;
      shape.paths[from * names.size() + to] = path;
    } else if (word == "trace") {
      WanTraceRow row;
      in >> row.at_us >> row.bytes_per_s >> row.delay_us >> row.loss;
      shape.trace.push_back(row);
    } else if (word == "share") {
      WanShare change;
      in >> change.party >> change.at_us >> change.share;
      if (!in || change.party >= names.size()) return false;
      shape.shares.push_back(change);
    } else if (word == "priorities") {
      has_priorities = true;
    } else if (word == "congestion") {
      in >> congestion;
    } else if (word == "seed") {
      in >> shape.seed;
    } else {
      return false;
    }
    return bool(in);
  }
};

class Router {
 public:
  explicit Router(Settings settings)
      : settings_(std::move(settings)),
        began_ns_(now_ns()),
        emulator_(settings_.shape, settings_.has_priorities, began_ns_) {}

  Status make_sites() {
    for (size_t i = 0; i < settings_.names.size(); ++i) {
      sites_.emplace_back();
      Status status = make_site(settings_.names[i], kFirstAddress + uint32_t(i), settings_.congestion, &sites_.back());
      if (!status.ok()) return status;
    }
    return {};
  }

  void tell_sites() const {
    std::cout << "{\"namespaces\": [";
    for (size_t i = 0; i < sites_.size(); ++i) std::cout << (i ? ", " : "") << sites_[i].namespace_fd;
    const std::string congestion = settings_.congestion.empty() ? default_congestion() : settings_.congestion;
    std::cout << "], \"congestion\": \"" << congestion << "\"}" << std::endl;
  }

  // Until standard input ends.
  void run() {
    std::vector<pollfd> waited{{0, POLLIN, 0}};
    for (const Site& site : sites_) waited.push_back({site.tun_fd, POLLIN, 0});
    uint64_t looked_ns = 0;
    while (true) {
      // Busy: all devices are looked at once a tick. Idle: until something comes.
      if (emulator_.is_idle()) {
        poll(waited.data(), waited.size(), -1);
      } else {
        sleep_a_tick();
      }
      const uint64_t now = now_ns();
      if (emulator_.is_idle() || now - looked_ns > 20'000'000) {
        looked_ns = now;
        if (!serve_input()) return;
      }
      for (uint32_t i = 0; i < sites_.size(); ++i) read_from(i, now);
      emulator_.run(now, [this](Packet&& packet) { write(packet); });
    }
  }

 private:
  // To the tick's end, so that packets close to each other cost one turn.
  static void sleep_a_tick() {
    const uint64_t until = (now_ns() / kTickNs + 1) * kTickNs;
    const timespec when{time_t(until / 1'000'000'000), long(until % 1'000'000'000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
  }

  void read_from(uint32_t from, uint64_t now) {
    uint8_t data[kMaxPacket];
    for (int i = 0; i < kMaxReads; ++i) {
      const ssize_t size = read(sites_[from].tun_fd, data, sizeof(data));
      if (size <= 0) return;
      if (size < 20 || data[0] >> 4 != 4) continue;  // IPv6's search for neighbours
      uint32_t destination;
      std::memcpy(&destination, data + 16, 4);
      const uint32_t to = ntohl(destination) - kFirstAddress;
      if (to >= sites_.size() || to == from) continue;
      Packet packet;
      packet.from = from;
      packet.to = to;
      packet.band = uint8_t(7 - (data[1] >> 5));  // the DSCP's class: a higher one leaves first
      packet.data.assign(data, data + size);
      emulator_.offer(now, std::move(packet));
    }
  }

  void write(const Packet& packet) {
    if (::write(sites_[packet.to].tun_fd, packet.data.data(), packet.data.size()) < 0) ++refused_;
  }

  bool serve_input() {
    pollfd input{0, POLLIN, 0};
    while (poll(&input, 1, 0) > 0) {
      char data[4096];
      const ssize_t size = read(0, data, sizeof(data));
      if (size <= 0) return false;
      text_.append(data, size_t(size));
      for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
        if (text_.substr(0, end) == "counters") tell_counters();
    }
    return true;
  }

  void tell_counters() const {
    std::cout << "{\"wall_s\": " << double(now_ns() - began_ns_) * 1e-9 << ", \"cpu_s\": " << cpu_s()
              << ", \"refused\": " << refused_ << ", \"links\": [";
    for (size_t i = 0; i < sites_.size(); ++i) {
      const LinkCounters& c = emulator_.counters()[i];
      std::cout << (i ? ", " : "") << "{\"party\": \"" << sites_[i].name << "\", \"up_packets\": " << c.up_packets
                << ", \"up_bytes\": " << c.up_bytes << ", \"down_packets\": " << c.down_packets
                << ", \"down_bytes\": " << c.down_bytes << ", \"dropped\": " << c.dropped << ", \"lost\": " << c.lost
                << "}";
    }
    std::cout << "]}" << std::endl;
  }

  Settings settings_;
  uint64_t began_ns_;
  Emulator emulator_;
  std::vector<Site> sites_;
  std::string text_;
  uint64_t refused_ = 0;  // by a device: its party is gone
};

int route() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);  // Ctrl-C is the launcher's, whose end is ours
  Settings settings;
  // By read() alone: nothing of what follows "start" may be swallowed.
  std::string line;
  for (char c; line != "start";) {
    line.clear();
    ssize_t size;
    while ((size = read(0, &c, 1)) == 1 && c != '\n') line += c;
    if (size <= 0) return fail("standard input ended before start");
    if (line != "start" && !settings.take(line)) return fail("not understood: " + line);
  }
  std::cout.precision(15);
  const sched_param priority{1};
  sched_setscheduler(0, SCHED_RR, &priority);  // packets wait for no one; without it they wait a little
  Router router(std::move(settings));
  if (Status status = router.make_sites(); !status.ok()) return fail(status.message());
  router.tell_sites();
  router.run();
  return 0;
}

}  // namespace
}  // namespace geomx

int main() { return geomx::route(); }
