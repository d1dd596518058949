// See datagram_flow.h.
#include "datagram_flow.h"

#include <algorithm>
#include <cstring>

namespace geomx {
namespace {

constexpr uint64_t kReorder = 8;           // packets that may overtake one before it counts as lost
constexpr uint64_t kGranularityUs = 1000;  // of timers
constexpr uint64_t kBurstUs = 1000;        // sent at once where time was lost,
constexpr uint64_t kMostBurstUs = 10'000;  // or where our host lost it: so much, or so many bytes
constexpr double kMostBurstBytes = 128 * 1024;
constexpr uint64_t kLeastQueue = 32 * 1024, kQueueUs = 4000;
constexpr uint64_t kStuckUs = 4'000'000;
constexpr uint64_t kInitialRttUs = 100'000, kMaxTimeoutUs = 1'000'000;

}  // namespace

DatagramFlow::DatagramFlow(uint64_t key, size_t max_packet, Transmit transmit, Deliver deliver)
    : key_(key),
      max_packet_(max_packet),
      transmit_(std::move(transmit)),
      inbox_(std::move(deliver)),
      congestion_(max_packet) {}

void DatagramFlow::set_max_packet(size_t bytes) {
  max_packet_ = bytes;
  congestion_.set_packet_bytes(bytes);
}

void DatagramFlow::note_rtt(uint64_t rtt_us, uint64_t now_us) {
  if (srtt_us_ != 0) return;
  update_rtt(rtt_us);
  RateSample sample;
  sample.rtt_us = rtt_us;
  sample.is_app_limited = true;
  congestion_.on_ack(sample, 0, now_us);
}

void DatagramFlow::update_rtt(uint64_t rtt_us) {
  if (srtt_us_ == 0) {
    srtt_us_ = rtt_us;
    rttvar_us_ = rtt_us / 2;
    return;
  }
  const uint64_t off = rtt_us > srtt_us_ ? rtt_us - srtt_us_ : srtt_us_ - rtt_us;
  rttvar_us_ = (3 * rttvar_us_ + off) / 4;
  srtt_us_ = (7 * srtt_us_ + rtt_us) / 8;
}

// ---- sending -------------------------------------------------------------------------------------------------------

void DatagramFlow::send(uint8_t channel, const Message& message, uint64_t now_us) {
  const bool is_reliable = channel == 0;
  Queued queued{channel, next_message_[is_reliable]++, flatten(message)};
  if (is_reliable) outgoing_[queued.message].flat = queued.flat;
  queued_bytes_ += queued.flat.size();
  if (is_idle()) {
    congestion_.on_restart(now_us);
    next_send_us_ = std::max(next_send_us_, now_us);
    last_heard_us_ = now_us;
  }
  queue_.push_back(std::move(queued));
}

size_t DatagramFlow::room() const {
  const uint64_t wanted = std::max(kLeastQueue, uint64_t(congestion_.bytes_per_s() * double(kQueueUs) * 1e-6));
  return queued_bytes_ >= wanted ? 0 : size_t(wanted - queued_bytes_);
}

bool DatagramFlow::may_send(uint64_t now_us) const {
  if (queue_.empty() && again_.empty()) return false;
  return next_send_us_ <= now_us && in_flight_bytes_ + max_packet_ <= congestion_.window();
}

void DatagramFlow::run(uint64_t now_us) {
  if (inbox_.ack_due_us() != 0 && inbox_.ack_due_us() <= now_us) send_ack(now_us);
  if (loss_timer_us_ != 0 && loss_timer_us_ <= now_us) detect_losses(now_us);
  if (!in_flight_.empty() && now_us >= last_sent_us_ + timeout_us()) on_timeout(now_us);
  catch_up(now_us);
  while (may_send(now_us) && send_one(now_us)) {
  }
  if (queue_.empty() && again_.empty()) {
    if (!last_pieces_.empty()) repeat_last(now_us);
    if (in_flight_bytes_ < congestion_.window()) app_limited_until_ = delivered_ + in_flight_bytes_;
    if (app_limited_until_ == 0) app_limited_until_ = 1;
  }
  const bool has_more = !queue_.empty() || !again_.empty();
  due_us_ = has_more && in_flight_bytes_ + max_packet_ <= congestion_.window() ? next_send_us_ : 0;
}

// A host that is busy comes here late. What would have left meanwhile leaves now, within reason; of what doesn't, the
// path is innocent.
void DatagramFlow::catch_up(uint64_t now_us) {
  const uint64_t late_us = due_us_ == 0 || due_us_ >= now_us ? 0 : now_us - due_us_;
  const uint64_t most_us = std::max(kMostBurstUs, uint64_t(kMostBurstBytes * 1e6 / congestion_.bytes_per_s()));
  if (late_us > kBurstUs || now_us > burst_at_us_ + kBurstUs) {  // it lasts for what is given in the same turn
    burst_us_ = std::min(std::max(late_us, kBurstUs), most_us);
    burst_at_us_ = now_us;
  }
  if (next_send_us_ + burst_us_ < now_us) next_send_us_ = now_us - burst_us_;
  if (late_us > most_us) app_limited_until_ = std::max<uint64_t>(delivered_ + in_flight_bytes_, 1);
}

bool DatagramFlow::send_one(uint64_t now_us) {
  Packet packet;
  packet.kind = PacketKind::data;
  packet.key = key_;
  Sent sent{};
  size_t room = max_packet_ - kDataHeader;
  fill_again(&packet, &sent, &room);
  if (packet.chunks.empty() || packet.channel == 0) fill_new(&packet, &sent, &room);
  if (packet.chunks.empty()) return !again_.empty() || !queue_.empty();
  transmit_data(std::move(packet), std::move(sent), now_us);
  return true;
}

void DatagramFlow::fill_again(Packet* packet, Sent* sent, size_t* room) {
  while (!again_.empty() && *room > kChunkHeader) {
    Piece& next = again_.front();
    const auto found = outgoing_.find(next.message);
    if (found == outgoing_.end() || found->second.acknowledged.covers(next.offset, next.offset + next.size)) {
      again_.pop_front();
      continue;
    }
    const uint64_t size = std::min<uint64_t>(next.size, *room - kChunkHeader);
    const Bytes& flat = found->second.flat;
    packet->chunks.push_back({next.message, next.offset, flat.size(), flat.data() + next.offset, size_t(size)});
    sent->pieces.push_back({next.message, next.offset, size});
    figures_.repeated_bytes += size;
    *room -= kChunkHeader + size;
    next.offset += size;
    next.size -= size;
    if (next.size == 0) again_.pop_front();
  }
}

// Pieces of one channel share a packet; a small lossy message that doesn't fit begins the next one.
void DatagramFlow::fill_new(Packet* packet, Sent* sent, size_t* room) {
  while (!queue_.empty() && *room > kChunkHeader) {
    Queued& next = queue_.front();
    if (!packet->chunks.empty() && next.channel != packet->channel) return;
    const uint64_t left = next.flat.size() - next.sent;
    const bool fits = left <= *room - kChunkHeader;
    if (!fits && next.channel != 0 && !packet->chunks.empty()) return;
    const uint64_t size = std::min<uint64_t>(left, *room - kChunkHeader);
    packet->channel = next.channel;
    packet->chunks.push_back({next.message, next.sent, next.flat.size(), next.flat.data() + next.sent, size_t(size)});
    if (next.channel == 0) sent->pieces.push_back({next.message, next.sent, size});
    *room -= kChunkHeader + size;
    next.sent += size;
    queued_bytes_ -= size;
    if (next.sent < next.flat.size()) return;
    // The views need the bytes until the packet is written; a reliable message keeps its own.
    if (next.channel != 0) sent_lossy_.push_back(std::move(next.flat));
    queue_.pop_front();
  }
}

void DatagramFlow::transmit_data(Packet packet, Sent sent, uint64_t now_us) {
  packet.number = next_number_++;
  const std::vector<uint8_t> datagram = write_packet(packet);
  sent_lossy_.clear();
  if (in_flight_.empty()) first_sent_us_ = delivered_us_ = now_us;
  sent.sent_us = now_us;
  sent.size = datagram.size();
  sent.channel = packet.channel;
  sent.is_app_limited = app_limited_until_ != 0;
  sent.delivered = delivered_;
  sent.delivered_us = delivered_us_;
  sent.first_sent_us = first_sent_us_;
  if (packet.channel == 0) last_pieces_ = sent.pieces;
  in_flight_bytes_ += sent.size;
  in_flight_.emplace(packet.number, std::move(sent));
  next_send_us_ += uint64_t(double(datagram.size()) * 1e6 / congestion_.bytes_per_s());
  last_sent_us_ = now_us;
  ++figures_.packets;
  figures_.bytes += datagram.size();
  transmit_(packet.channel, datagram);
}

// When the newest reliable packet is lost and nothing follows it, only a timeout would tell: it is sent twice.
void DatagramFlow::repeat_last(uint64_t now_us) {
  std::vector<Piece> pieces;
  pieces.swap(last_pieces_);
  if (in_flight_bytes_ + max_packet_ > congestion_.window() || next_send_us_ > now_us + kBurstUs) return;
  for (const Piece& piece : pieces) again_.push_back(piece);
  send_one(now_us);
  again_.clear();
  last_pieces_.clear();
}

uint64_t DatagramFlow::timeout_us() const {
  const uint64_t rtt_us = srtt_us_ == 0 ? kInitialRttUs : srtt_us_;
  const uint64_t base_us = rtt_us + std::max(4 * rttvar_us_, kGranularityUs) + 2 * kAckDelayUs;
  return std::min(base_us << std::min(timeouts_, 6), std::max(kMaxTimeoutUs, 2 * base_us));
}

// Does anything that it carried still have to arrive?
bool DatagramFlow::is_needed(const Sent& sent) const {
  for (const Piece& piece : sent.pieces) {
    const auto found = outgoing_.find(piece.message);
    if (found == outgoing_.end()) continue;
    if (!found->second.acknowledged.covers(piece.offset, piece.offset + piece.size)) return true;
  }
  return false;
}

// No acknowledgement came: the oldest reliable packets are sent again, whatever the window says; others are lost.
void DatagramFlow::on_timeout(uint64_t now_us) {
  ++timeouts_;
  std::vector<uint64_t> over;
  int repeated = 0;
  for (const auto& [number, sent] : in_flight_) {
    if (!is_needed(sent)) {
      over.push_back(number);
    } else if (repeated < 2) {
      ++repeated;
      for (const Piece& piece : sent.pieces) again_.push_back(piece);
    }
  }
  for (uint64_t number : over) lose(in_flight_.find(number));
  last_sent_us_ = now_us;
  for (; repeated > 0 && !again_.empty(); --repeated) send_one(now_us);
}

bool DatagramFlow::is_stuck(uint64_t now_us) const {
  return !in_flight_.empty() && timeouts_ > 3 && now_us - last_heard_us_ > kStuckUs;
}

std::vector<Message> DatagramFlow::take_unacknowledged() {
  std::vector<Message> out;
  for (const auto& [number, message] : outgoing_)
    if (std::optional<Message> whole = unflatten(message.flat)) out.push_back(std::move(*whole));
  outgoing_.clear();
  queue_.clear();
  again_.clear();
  in_flight_.clear();
  last_pieces_.clear();
  queued_bytes_ = in_flight_bytes_ = due_us_ = 0;
  timeouts_ = 0;
  return out;
}

uint64_t DatagramFlow::next_us() const {
  uint64_t next = 0;
  const auto at = [&next](uint64_t when_us) { next = next == 0 ? when_us : std::min(next, when_us); };
  if (inbox_.ack_due_us() != 0) at(inbox_.ack_due_us());
  if (loss_timer_us_ != 0) at(loss_timer_us_);
  if (!in_flight_.empty()) at(last_sent_us_ + timeout_us());
  if ((!queue_.empty() || !again_.empty()) && in_flight_bytes_ + max_packet_ <= congestion_.window())
    at(std::max<uint64_t>(next_send_us_, 1));
  return next;
}

// ---- acknowledgements ----------------------------------------------------------------------------------------------

void DatagramFlow::take_ack(const Packet& packet, uint64_t now_us, uint64_t arrived_us) {
  if (packet.ranges.front().second > next_number_) {
    ++figures_.malformed;
    return;
  }
  last_heard_us_ = now_us;
  const uint64_t largest = packet.ranges.front().second - 1;
  bool is_newest_here = false;
  uint64_t newest_number = 0;
  Sent newest{};
  for (const auto& [first, end] : packet.ranges) {
    auto sent = in_flight_.lower_bound(first);
    while (sent != in_flight_.end() && sent->first < end) {
      in_flight_bytes_ -= sent->second.size;
      delivered_ += sent->second.size;
      acknowledge_pieces(sent->second);
      if (sent->first > newest_number) {
        newest = sent->second;
        newest_number = sent->first;
      }
      is_newest_here = true;
      sent = in_flight_.erase(sent);
    }
  }
  if (!is_newest_here) return;
  delivered_us_ = now_us;
  timeouts_ = 0;
  largest_acknowledged_ = std::max(largest_acknowledged_, largest);
  // Timers have to do with all of it, the path with what the hosts didn't take. How long the other host had it is said
  // of the largest number alone.
  const uint64_t all_us = now_us - newest.sent_us;
  const uint64_t here_us = std::min(now_us - std::min(arrived_us, now_us), all_us);
  const bool is_told = newest_number == largest && packet.delay_us < all_us - here_us;
  const uint64_t host_us = is_told ? here_us + packet.delay_us : 0;
  update_rtt(std::max<uint64_t>(all_us, 1));
  detect_losses(now_us);
  note_delivery(newest, is_told ? all_us - host_us : 0, host_us, now_us);
}

void DatagramFlow::acknowledge_pieces(const Sent& sent) {
  for (const Piece& piece : sent.pieces) {
    auto found = outgoing_.find(piece.message);
    if (found == outgoing_.end()) continue;
    found->second.acknowledged.add(piece.offset, piece.offset + piece.size);
    if (found->second.acknowledged.count() == found->second.flat.size()) outgoing_.erase(found);
  }
}

// Delivery rate as in draft-cheng-iccrg-delivery-rate-estimation: over the longer of the times in which the packets
// since the one that is acknowledged were sent, and were acknowledged.
void DatagramFlow::note_delivery(const Sent& newest, uint64_t rtt_us, uint64_t host_us, uint64_t now_us) {
  if (app_limited_until_ != 0 && delivered_ > app_limited_until_) app_limited_until_ = 0;
  first_sent_us_ = newest.sent_us;
  const uint64_t send_us = newest.sent_us - newest.first_sent_us, ack_us = now_us - newest.delivered_us;
  const uint64_t span_us = std::max(send_us, ack_us);
  RateSample sample;
  sample.is_app_limited = newest.is_app_limited;
  sample.rtt_us = rtt_us;
  sample.host_us = host_us;
  sample.delivered = delivered_;
  sample.lost = lost_;
  sample.delivered_at_sending = newest.delivered;
  if (span_us != 0 && span_us >= congestion_.min_rtt_us() / 2)
    sample.bytes_per_s = double(delivered_ - newest.delivered) * 1e6 / double(span_us);
  congestion_.on_ack(sample, in_flight_bytes_, now_us);
}

void DatagramFlow::detect_losses(uint64_t now_us) {
  loss_timer_us_ = 0;
  const uint64_t patience_us = std::max(srtt_us_ + std::max(srtt_us_ / 8, rttvar_us_), kGranularityUs);
  for (auto sent = in_flight_.begin(); sent != in_flight_.end() && sent->first < largest_acknowledged_;) {
    const auto next = std::next(sent);
    const uint64_t due_us = sent->second.sent_us + patience_us;
    if (largest_acknowledged_ - sent->first >= kReorder || due_us <= now_us)
      lose(sent);
    else if (loss_timer_us_ == 0 || due_us < loss_timer_us_)
      loss_timer_us_ = due_us;
    sent = next;
  }
}

void DatagramFlow::lose(std::map<uint64_t, Sent>::iterator packet) {
  in_flight_bytes_ -= packet->second.size;
  lost_ += packet->second.size;
  ++figures_.lost_packets;
  if (packet->second.pieces.empty()) ++figures_.lost_lossy_packets;
  for (const Piece& piece : packet->second.pieces) again_.push_back(piece);
  in_flight_.erase(packet);
}

void DatagramFlow::send_ack(uint64_t now_us) {
  std::optional<Packet> packet = inbox_.acknowledge(now_us);
  if (!packet) return;
  packet->key = key_;
  const std::vector<uint8_t> datagram = write_packet(*packet);
  ++figures_.packets;
  figures_.bytes += datagram.size();
  transmit_(0, datagram);
}

// ---- receiving -----------------------------------------------------------------------------------------------------

void DatagramFlow::take_data(const Packet& packet, uint64_t now_us, uint64_t arrived_us) {
  last_heard_us_ = now_us;
  inbox_.take(packet, now_us, std::min(arrived_us, now_us));
}

DatagramFlow::Figures DatagramFlow::figures() const {
  Figures all = figures_;
  all.doubles = inbox_.figures().doubles;
  all.malformed += inbox_.figures().malformed;
  all.crowded = inbox_.figures().crowded;
  return all;
}

}  // namespace geomx
