// See emulator.h.
#include "emulator.h"

#include <algorithm>
#include <utility>

namespace geomx {

Emulator::Emulator(WanShape shape, bool has_priorities, uint64_t origin_ns)
    : shape_(std::move(shape)), has_priorities_(has_priorities), origin_ns_(origin_ns), random_(shape_.seed) {
  const size_t n = shape_.num_parties();
  links_.resize(2 * n);
  counters_.resize(n);
  losses_.resize(n * n);
  last_due_ns_.assign(n * n, 0);
}

const WanTraceRow* Emulator::row(uint64_t now_ns) const {
  return shape_.row_at(now_ns > origin_ns_ ? (now_ns - origin_ns_) / 1000 : 0);
}

double Emulator::rate(uint64_t now_ns, uint32_t link) const {
  const uint64_t since_us = now_ns > origin_ns_ ? (now_ns - origin_ns_) / 1000 : 0;
  return shape_.rate_at(since_us, link / 2, link % 2 == 0 ? LinkSide::up : LinkSide::down);
}

void Emulator::offer(uint64_t now_ns, Packet packet) {
  LinkCounters& counters = counters_[packet.from];
  ++counters.up_packets;
  counters.up_bytes += packet.data.size();
  if (!has_priorities_) packet.band = 0;
  enqueue(now_ns, 2 * packet.from, std::move(packet));
}

void Emulator::enqueue(uint64_t now_ns, uint32_t index, Packet packet) {
  Link& link = links_[index];
  const double size = double(packet.data.size());
  const double limit = rate(now_ns, index) <= 0 ? 1e12 : shape_.queue_bytes[index / 2];
  if (link.queued_bytes + size > limit && !make_room(link, packet, limit)) {
    ++counters_[index / 2].dropped;
    return;
  }
  link.queued_bytes += size;
  link.bands[packet.band].push_back(std::move(packet));
  if (!link.is_sending) send_next(now_ns, index);
}

// By dropping what came last in the bands that leave after this packet's.
bool Emulator::make_room(Link& link, const Packet& packet, double limit) {
  for (size_t band = kBands - 1; band > packet.band; --band) {
    while (!link.bands[band].empty() && link.queued_bytes + double(packet.data.size()) > limit) {
      ++counters_[size_t(&link - links_.data()) / 2].dropped;
      link.queued_bytes -= double(link.bands[band].back().data.size());
      link.bands[band].pop_back();
    }
  }
  return link.queued_bytes + double(packet.data.size()) <= limit;
}

void Emulator::send_next(uint64_t now_ns, uint32_t index) {
  Link& link = links_[index];
  for (std::deque<Packet>& band : link.bands) {
    if (band.empty()) continue;
    link.sending = std::move(band.front());
    band.pop_front();
    const double size = double(link.sending.data.size()), bytes_per_s = rate(now_ns, index);
    link.queued_bytes -= size;
    link.is_sending = true;
    return schedule(now_ns + (bytes_per_s > 0 ? uint64_t(size / bytes_per_s * 1e9) : 0), index);
  }
}

void Emulator::run(uint64_t now_ns, const Deliver& deliver) {
  while (!events_.empty() && events_.top().when_ns <= now_ns) {
    const Event event = events_.top();
    events_.pop();
    if (event.link != kArrives) {
      on_sent(event.when_ns, event.link, deliver);
    } else {
      Packet packet = std::move(arriving_[event.slot]);
      free_slots_.push_back(event.slot);
      const uint32_t link = 2 * packet.to + 1;
      enqueue(event.when_ns, link, std::move(packet));
    }
  }
}

void Emulator::on_sent(uint64_t now_ns, uint32_t index, const Deliver& deliver) {
  Link& link = links_[index];
  Packet packet = std::move(link.sending);
  link.is_sending = false;
  send_next(now_ns, index);
  if (index % 2 == 0) return travel(now_ns, std::move(packet));
  LinkCounters& counters = counters_[index / 2];
  ++counters.down_packets;
  counters.down_bytes += packet.data.size();
  deliver(std::move(packet));
}

// Between two links of one rate packets arrive exactly when others leave. In a full queue each then finds its
// predecessor's room, and whoever else comes, between two of them, never finds any: clocks so exact starve one sender
// for as long as another sends (Floyd and Jacobson 1992, "On traffic phase effects"). As they advise, each packet is
// delayed by up to the time of one on the link that it comes to.
uint64_t Emulator::phase_ns(uint64_t now_ns, uint32_t link) {
  const double bytes_per_s = rate(now_ns, link);
  if (bytes_per_s <= 0) return 0;
  return uint64_t(std::uniform_real_distribution<double>(0, kPacketBytes / bytes_per_s * 1e9)(random_));
}

void Emulator::travel(uint64_t now_ns, Packet packet) {
  const size_t pair = packet.from * shape_.num_parties() + packet.to;
  const WanPath& path = shape_.paths[pair];
  const WanTraceRow* now = row(now_ns);
  if (losses_[pair].is_lost(now == nullptr ? path.loss : now->loss, path.burst, random_)) {
    ++counters_[packet.from].lost;
    return;
  }
  const double jitter = path.jitter_us == 0 ? 0 : std::uniform_real_distribution<double>(-1, 1)(random_);
  const double delay_us = std::max(0.0, (now == nullptr ? path.delay_us : now->delay_us) + jitter * path.jitter_us);
  const uint64_t due_ns = now_ns + uint64_t(delay_us * 1000) + phase_ns(now_ns, 2 * packet.to + 1);
  last_due_ns_[pair] = std::max(last_due_ns_[pair], due_ns);
  size_t slot = arriving_.size();
  if (free_slots_.empty()) {
    arriving_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  arriving_[slot] = std::move(packet);
  schedule(last_due_ns_[pair], kArrives, slot);
}

}  // namespace geomx
