// Lossy channels as streams: beside another transport's connection one more TCP connection for each channel, marked
// with its priority (DSCP class selectors, falling). What is lost on the way holds up only its own channel, and what a
// kernel would only keep waiting isn't taken (room()): it stays where it can still be dropped.
//
// Who opened the main connection opens these too, to the port and with the key that the other end told it over that
// connection; a connection that shows no key is a stranger's, counted and closed. Where they can't be opened, or break,
// what is for them takes the reliable way, and they are tried again. Lives on its loop's thread.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "local_pipe.h"
#include "loop.h"
#include "sockets.h"
#include "transport_over.h"

namespace geomx {

// How two nodes tell each other, over the main connection, that they have such channels.
struct StreamOffer {
  uint8_t count = 0;
  uint16_t port = 0;  // 0: who says it opens the connections
  uint64_t key = 0;   // to be shown there
};
Bytes pack(const StreamOffer& offer);
bool is_stream_offer(const Bytes& head);
std::optional<StreamOffer> parse_stream_offer(const Bytes& head);

class SideStreams : public TransportOver, private Loop::Source {
 public:
  SideStreams(Loop& loop, std::unique_ptr<Transport> main);
  ~SideStreams() override;

  Status connect(const std::string& address, PeerId* peer) override;
  void send(PeerId peer, uint8_t channel, Message message) override;
  size_t overhead_to(PeerId peer, uint8_t channel, const Message& message) const override;
  void close() override;

  Status open_channels(const LossyChannels& channels) override;
  size_t max_datagram(PeerId peer) const override;
  size_t room(PeerId peer, uint8_t channel) const override;
  std::map<std::string, double> figures() const override;
  uint16_t port() const { return port_; }
  void garble_for_tests(PeerId peer);  // what comes there makes no sense

 private:
  struct Stream {
    int connecting = -1;  // a descriptor whose connection isn't there yet
    std::unique_ptr<LocalPipe> pipe;
    size_t place = SIZE_MAX;  // of its descriptor among those that were last waited for
  };
  struct Session {
    std::string host;  // of peers that we connected to
    uint64_t own_key = 0;
    bool has_offered = false, has_theirs = false, is_up = false, is_warned = false, is_retrying = false;
    StreamOffer theirs;
    std::vector<Stream> streams;  // by channel - 1
  };
  struct Stranger {
    int fd = -1;
    size_t place = SIZE_MAX;
    std::vector<uint8_t> shown = {};
  };

  void take_in(PeerId from, uint8_t channel, Message message) override;
  void lose(PeerId peer, const std::string& why) override;

  Session* up(PeerId peer) const;
  void offer_to(PeerId peer, Session& session);
  void take_offer(PeerId peer, const Message& message);
  void open_streams(PeerId peer, Session& session);
  int open_stream(const Session& session, uint8_t channel);
  Status listen();
  void finish_connecting(PeerId peer, Session& session, uint8_t channel);
  void accept_strangers();
  bool is_settled(Stranger& stranger);
  void check_up(PeerId peer, Session& session);
  void break_off(PeerId peer, Session& session, const std::string& why);
  void close_streams(Session& session);
  void read_stream(PeerId peer, Session& session, uint8_t channel);
  void prepare(int fd, uint8_t channel) const;

  bool append_descriptors(std::vector<pollfd>* descriptors) override;
  void read(const std::vector<pollfd>& descriptors) override;

  Loop& loop_;
  uint8_t num_channels_ = 0;
  int listener_ = -1;
  size_t listener_place_ = SIZE_MAX;
  uint16_t port_ = 0;
  std::unordered_map<PeerId, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uint64_t, PeerId> by_key_;  // keys that others show to us
  std::deque<Stranger> strangers_;               // connected, nothing shown yet
  uint64_t num_strangers_ = 0, num_messages_ = 0, num_bytes_ = 0;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // for timers
  bool is_closed_ = false;
};

}  // namespace geomx
