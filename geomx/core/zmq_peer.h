// One connection of a transport over ZeroMQ: opened by us, on a DEALER of its own, or by the peer, which is then
// answered through the door (zmq_door.h). On the wire a message of the node is its head and its attachments, a frame
// each. Frames that begin with an empty one are the transport's own (handshake.h): greetings, references to shared
// memory before a message, returns, the change to a pipe, goodbyes. Lives on its loop's thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "handshake.h"
#include "lending.h"
#include "local_pipe.h"
#include "loop.h"
#include "transport.h"
#include "zmq_door.h"
#include "zmq_socket.h"

namespace geomx {

// What the connections of a transport have in common.
struct ZmqShared {
  ZmqShared(Loop& its_loop, ZmqOptions its_options, ZmqDoor::Events events)
      : loop(its_loop),
        options(std::move(its_options)),
        door(loop, options, std::move(events)),
        lender(loop, options.is_memory_shared) {}

  Loop& loop;
  ZmqOptions options;
  ZmqDoor door;
  Lender lender;
  std::unique_ptr<PipeListener> pipe_listener;  // null until the first is wanted
  Transport::Receiver receiver;
  Transport::OnRefused on_refused;
  Transport::OnLost on_lost;
  bool is_closing = false;  // nothing is called back any more
  bool is_closed = false;

  void refuse(const std::string& why) const {
    if (on_refused && !is_closing) on_refused(why);
  }
  void tell_lost(PeerId peer, const std::string& why) const {
    if (on_lost && !is_closing) on_lost(peer, why);
  }
};

class ZmqPeer {
 public:
  ZmqPeer(ZmqShared& shared, PeerId id);
  ZmqPeer(const ZmqPeer&) = delete;
  ZmqPeer& operator=(const ZmqPeer&) = delete;

  // Begins, in one of two ways.
  void connect(const std::string& address, const std::string& endpoint);
  void welcome(const std::string& routing_id, const std::string& host, const Hello& hello);

  PeerId id() const { return id_; }
  bool is_lost() const { return state_ == State::lost; }
  bool shares_memory() const { return loans_.can_read_ours(); }
  bool has_pipe() const { return pipe_ != nullptr && is_pipe_read_; }

  void send(Message message);
  Bytes allocate(size_t size) { return loans_.allocate(size); }
  // What came through the door.
  void take(std::vector<Bytes> frames);

  // As of Loop::Source; the pipe and the socket are read in two passes over all peers.
  bool append_descriptors(std::vector<pollfd>* descriptors);
  void read_pipe(const std::vector<pollfd>& descriptors);
  void read_socket(const std::vector<pollfd>& descriptors);
  bool has_socket() const { return dealer_.is_open(); }

  // The other side has closed it. What it sent before its end is read first: the welcome, or why it went.
  void end();
  void finish_ended();
  // Asks whether all was read, if somebody is there who was sent something.
  void say_goodbye();
  bool is_leaving() const { return is_leaving_; }
  void close();

 private:
  enum class State { greeting, open, lost };

  void open_connection();
  void reopen_later();
  void tell_trouble(const std::string& why);
  void lose(const std::string& why, int linger_ms = 0);
  void read_events();
  bool read_pipe_on();

  void on_internal(const std::vector<Bytes>& frames);
  void on_welcome(const Welcome& welcome);
  bool on_control(const Bytes& content);
  void on_bye();
  void offer_pipe();
  void open_pipe(const PipeOffer& offer);
  void on_pipe_follows();
  void on_blocks(const std::vector<Bytes>& frames);
  void deliver(Message message);

  void send_frames(std::vector<Bytes> frames);
  void send_internal(Bytes content);
  bool write(const std::vector<Bytes>& frames);

  ZmqShared& shared_;
  const PeerId id_;
  State state_ = State::greeting;
  std::string name_;  // "to 127.0.0.1:9092", "from 10.0.0.2", for sentences
  // Connections that we opened.
  ZmqSocket dealer_;
  std::string endpoint_;
  std::vector<std::vector<Bytes>> unconfirmed_;  // sent before the welcome: sent again when the connection breaks
  uint64_t opened_us_ = 0;
  std::string trouble_;  // why it isn't open yet, when that was told
  // Connections that others opened.
  std::string routing_id_;
  bool is_known_ = false;  // to the node: something of it was delivered
  // Both.
  bool is_leaving_ = false;  // we said goodbye and wait for the answer
  bool is_ending_ = false;   // closed by the other side; judged once all that it sent has been read
  Loans loans_;
  // What is sent goes through the pipe once there is one, what comes in once the other side has said so.
  std::unique_ptr<LocalPipe> pipe_;
  PipeOffer pipe_offer_;  // ours to them
  bool is_pipe_read_ = false;
  size_t pipe_place_ = SIZE_MAX;                                   // among what was last waited for
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // for timers
};

}  // namespace geomx
