// A transport around another one, which carries what this one doesn't carry itself. Every call goes to the inner one
// and every callback to the node; a subclass overrides what it changes, on the way down (send, room, ...) and on the
// way up (take_in, lose).
#pragma once
#include <memory>

#include "transport.h"

namespace geomx {

class TransportOver : public Transport {
 public:
  explicit TransportOver(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Status bind(const std::string& host, uint16_t port) override { return inner_->bind(host, port); }
  std::string address() const override { return inner_->address(); }
  Status connect(const std::string& address, PeerId* peer) override { return inner_->connect(address, peer); }
  void send(PeerId peer, uint8_t channel, Message message) override { inner_->send(peer, channel, std::move(message)); }
  Bytes allocate(PeerId peer, size_t size) override { return inner_->allocate(peer, size); }
  void receive(Receiver receiver, OnRefused on_refused, OnLost on_lost) final {
    receiver_ = std::move(receiver);
    on_refused_ = std::move(on_refused);
    on_lost_ = std::move(on_lost);
    inner_->receive([this](PeerId from, uint8_t channel, Message m) { take_in(from, channel, std::move(m)); },
                    on_refused_, [this](PeerId peer, const std::string& why) { lose(peer, why); });
  }
  size_t overhead(const Message& message) const override { return inner_->overhead(message); }
  size_t overhead_to(PeerId peer, uint8_t channel, const Message& message) const override {
    return inner_->overhead_to(peer, channel, message);
  }
  Status open_channels(const LossyChannels& channels) override { return inner_->open_channels(channels); }
  size_t max_datagram(PeerId peer) const override { return inner_->max_datagram(peer); }
  size_t room(PeerId peer, uint8_t channel) const override { return inner_->room(peer, channel); }
  void on_room(std::function<void(PeerId)> handler) final {
    on_room_ = handler;
    inner_->on_room(std::move(handler));
  }
  std::map<std::string, double> figures() const override { return inner_->figures(); }
  bool is_lost(PeerId peer) const override { return inner_->is_lost(peer); }
  void set_linger_ms(int linger_ms) override { inner_->set_linger_ms(linger_ms); }
  void close() override { inner_->close(); }

 protected:
  // What the inner transport received, and what it tells of a connection.
  virtual void take_in(PeerId from, uint8_t channel, Message message) { receiver_(from, channel, std::move(message)); }
  virtual void lose(PeerId peer, const std::string& why) {
    if (on_lost_) on_lost_(peer, why);
  }

  void refuse(const std::string& why) const {
    if (on_refused_) on_refused_(why);
  }
  void tell_room(PeerId peer) const {
    if (on_room_) on_room_(peer);
  }

  const std::unique_ptr<Transport> inner_;
  // The node's; none before receive() and on_room().
  Receiver receiver_;
  OnRefused on_refused_;
  OnLost on_lost_;
  std::function<void(PeerId)> on_room_;
};

}  // namespace geomx
