// See zmq_peer.h.
#include "zmq_peer.h"

#include <cerrno>
#include <iterator>
#include <utility>

namespace geomx {
namespace {

constexpr size_t kMaxBytesATurn = 512 << 10;  // of a pipe, as of a socket
constexpr uint64_t kReopenUs = 300'000;
constexpr uint64_t kQuickFailureUs = 1'000'000;

}  // namespace

ZmqPeer::ZmqPeer(ZmqShared& shared, PeerId id)
    : shared_(shared), id_(id), loans_(shared.lender, shared.loop, [this](const Returns& returns) {
        if (state_ == State::open) send_internal(pack(returns));
      }) {}

// ---- beginning -----------------------------------------------------------------------------------------------------

void ZmqPeer::connect(const std::string& address, const std::string& endpoint) {
  name_ = "to " + address;
  endpoint_ = endpoint;
  open_connection();
}

void ZmqPeer::open_connection() {
  dealer_.open(shared_.loop.context(), ZMQ_DEALER, shared_.options);
  opened_us_ = shared_.loop.now_us();
  GX_CHECK(dealer_.connect(endpoint_) == 0, zmq_strerror(errno));
  Hello hello;
  hello.proof = hello_proof(shared_.options.token);
  hello.offer = shared_.lender.offer();
  write({Bytes(), pack(hello)});
  for (const std::vector<Bytes>& frames : unconfirmed_) write(frames);
}

// The connection broke before the welcome: whatever it took with it is sent again on a new one.
void ZmqPeer::reopen_later() {
  dealer_.close(0);
  shared_.loop.after(kReopenUs, [this, is_alive = is_alive_] {
    if (*is_alive && state_ == State::greeting) open_connection();
  });
}

void ZmqPeer::tell_trouble(const std::string& why) {
  const bool is_first = trouble_.empty();
  trouble_ = why;
  if (is_first) shared_.tell_lost(id_, "no connection " + name_ + " yet: " + why + "; trying on");
}

void ZmqPeer::welcome(const std::string& routing_id, const std::string& host, const Hello& hello) {
  name_ = "from " + host;
  routing_id_ = routing_id;
  state_ = State::open;
  loans_.open(hello.offer);
  Welcome welcome;
  welcome.proof = welcome_proof(shared_.options.token);
  welcome.offer = shared_.lender.offer();
  welcome.can_read_yours = loans_.can_read_theirs();
  send_internal(pack(welcome));
}

void ZmqPeer::on_welcome(const Welcome& welcome) {
  if (!is_equal(welcome.proof, welcome_proof(shared_.options.token))) {
    return lose("the connection " + name_ + " is refused: who listens there doesn't know this run's token");
  }
  state_ = State::open;
  trouble_.clear();
  unconfirmed_.clear();
  loans_.set_readable_there(welcome.can_read_yours);
  loans_.open(welcome.offer);
  if (loans_.can_read_theirs() && !is_leaving_) send_internal(pack(CanRead{}));
}

// ---- reading -------------------------------------------------------------------------------------------------------

bool ZmqPeer::append_descriptors(std::vector<pollfd>* descriptors) {
  const bool has_some = dealer_.append_descriptors(descriptors);
  // Only now: it may have been lost by what came through its own pipe.
  if (state_ == State::lost && pipe_ != nullptr && !pipe_->has_unsent()) pipe_.reset();
  if (pipe_ != nullptr && (is_pipe_read_ || pipe_->has_unsent())) {
    pipe_place_ = descriptors->size();
    const int wanted = (is_pipe_read_ ? POLLIN : 0) | (pipe_->has_unsent() ? POLLOUT : 0);
    descriptors->push_back({pipe_->fd(), static_cast<short>(wanted), 0});
  }
  if (!is_ending_) return has_some;
  // A connection that has ended is judged when it was read.
  if (routing_id_.empty()) {
    dealer_.read_again();
  } else {
    shared_.door.read_again();
  }
  return true;
}

void ZmqPeer::read_pipe(const std::vector<pollfd>& descriptors) {
  const size_t place = std::exchange(pipe_place_, SIZE_MAX);
  const int told = place < descriptors.size() ? descriptors[place].revents : 0;
  if (pipe_ == nullptr || told == 0) return;
  if ((told & POLLOUT) != 0 && !pipe_->flush()) end();
  if ((told & ~POLLOUT) == 0) return;
  if (is_pipe_read_) {
    read_pipe_on();
  } else {
    pipe_.reset();  // of a lost peer, which won't read what is left
  }
}

// False: there is nothing more in it.
bool ZmqPeer::read_pipe_on() {
  if (!is_pipe_read_ || shared_.is_closed) return false;
  const auto found = pipe_->receive(kMaxBytesATurn, [this](std::vector<Bytes> frames) { take(std::move(frames)); });
  if (found == LocalPipe::Found::more) return true;
  if (found == LocalPipe::Found::garbage) shared_.refuse("a malformed message in the pipe, " + name_);
  if (found != LocalPipe::Found::nothing) {  // the connection's end is told by ZeroMQ too, but perhaps later
    is_pipe_read_ = false;
    end();
  }
  return false;
}

void ZmqPeer::read_socket(const std::vector<pollfd>& descriptors) {
  bool has_events = false;
  if (!dealer_.is_told(descriptors, &has_events)) return;
  if (has_events) read_events();
  if (dealer_.is_open()) {
    dealer_.read_messages([this](const ZmqFrames& frames) { take(contents_of(frames, 0)); },
                          [this](const std::string& why) { shared_.refuse(why); });
  }
  if (!dealer_.has_more()) finish_ended();
}

void ZmqPeer::read_events() {
  ZmqSocket::Event event;
  while (dealer_.read_event(&event)) {
    if (event.kind == ZmqSocket::Event::Kind::tried && state_ == State::greeting) {
      const bool is_quick = shared_.loop.now_us() - opened_us_ < kQuickFailureUs;
      tell_trouble(is_quick ? "connection refused" : "no answer");
    } else if (event.kind == ZmqSocket::Event::Kind::spoke_otherwise && state_ == State::greeting) {
      tell_trouble("who listens there is no node of ours");
    } else if (event.kind == ZmqSocket::Event::Kind::ended) {
      end();
    }
  }
}

// ---- what the peer sends -------------------------------------------------------------------------------------------

void ZmqPeer::take(std::vector<Bytes> frames) {
  if (state_ == State::lost) return;
  if (frames[0].empty()) return on_internal(frames);
  if (state_ != State::open) return shared_.refuse("a message without a welcome before it, " + name_);
  Message message;
  message.head = std::move(frames[0]);
  message.attachments.assign(std::make_move_iterator(frames.begin() + 1), std::make_move_iterator(frames.end()));
  frames.clear();
  deliver(std::move(message));
}

void ZmqPeer::on_internal(const std::vector<Bytes>& frames) {
  const Bytes content = frames.size() > 1 ? frames[1] : Bytes();
  const bool is_alone = frames.size() == 2;
  if (is_alone && state_ == State::greeting) {
    if (const auto welcome = parse_welcome(content)) return on_welcome(*welcome);
    if (const auto refusal = parse_refusal(content)) {
      return lose("the connection " + name_ + " is refused by the node there: " + refusal->why);
    }
  } else if (is_alone && on_control(content)) {
    return;
  } else if (state_ == State::open && frames.size() > 2) {
    return on_blocks(frames);
  }
  shared_.refuse("a malformed message of the transport, " + name_);
}

bool ZmqPeer::on_control(const Bytes& content) {
  if (is_can_read(content)) {
    loans_.set_readable_there(true);
    if (loans_.can_read_ours() && loans_.can_read_theirs()) offer_pipe();
  } else if (const auto returns = parse_returns(content)) {
    loans_.take_back(*returns);
  } else if (const auto offer = parse_pipe_offer(content); offer && shared_.lender.is_there() && pipe_ == nullptr) {
    open_pipe(*offer);
  } else if (is_pipe_follows(content) && !is_pipe_read_) {
    on_pipe_follows();
  } else if (is_bye(content)) {
    on_bye();
  } else if (is_bye_too(content) && is_leaving_) {
    lose("it was left");
  } else {
    return false;
  }
  return true;
}

void ZmqPeer::on_blocks(const std::vector<Bytes>& frames) {
  Message message;
  const std::vector<Bytes> others(frames.begin() + 3, frames.end());
  const Status status = loans_.borrow(frames[1], frames[2], others, &message);
  if (!status.ok()) return shared_.refuse(status.message() + ", " + name_);
  deliver(std::move(message));
}

void ZmqPeer::deliver(Message message) {
  is_known_ = true;
  if (shared_.receiver && !shared_.is_closing) shared_.receiver(id_, 0, std::move(message));
}

// ---- changing to a pipe --------------------------------------------------------------------------------------------

void ZmqPeer::offer_pipe() {
  if (shared_.pipe_listener == nullptr) shared_.pipe_listener = PipeListener::create();
  if (shared_.pipe_listener == nullptr || !pipe_offer_.name.empty()) return;
  pipe_offer_ = shared_.pipe_listener->offer();
  if (!pipe_offer_.name.empty()) send_internal(pack(pipe_offer_));
}

// Where it can't be opened, all stays as it is. After the goodbye nothing new begins: the other side may be gone.
void ZmqPeer::open_pipe(const PipeOffer& offer) {
  if (is_leaving_) return;
  std::unique_ptr<LocalPipe> pipe = LocalPipe::connect(offer);
  if (pipe == nullptr) return;
  send_internal(pack(PipeFollows{}));
  pipe_ = std::move(pipe);
}

// From who opened it: it waits at our listener. From the other side: it has found it.
void ZmqPeer::on_pipe_follows() {
  if (pipe_ == nullptr && !pipe_offer_.name.empty()) {
    std::unique_ptr<LocalPipe> pipe = shared_.pipe_listener->accept(pipe_offer_);
    if (pipe != nullptr) send_internal(pack(PipeFollows{}));
    pipe_ = std::move(pipe);
  }
  if (pipe_ == nullptr) return lose("the connection " + name_ + " is lost: its pipe was not found");
  is_pipe_read_ = true;
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void ZmqPeer::end() { is_ending_ = is_ending_ || state_ != State::lost; }

void ZmqPeer::finish_ended() {
  if (!is_ending_ || shared_.is_closed || read_pipe_on()) return;
  if (state_ == State::lost) return;
  is_ending_ = false;
  const std::string why = "the other side closed it";
  if (state_ == State::open) return lose("the connection " + name_ + " is lost: " + why);
  if (shared_.is_closing) return lose(why);
  reopen_later();
  tell_trouble(why);
}

void ZmqPeer::lose(const std::string& why, int linger_ms) {
  if (state_ == State::lost) return;
  state_ = State::lost;
  is_leaving_ = false;
  is_ending_ = false;
  dealer_.close(linger_ms);
  is_pipe_read_ = false;
  shared_.door.forget(routing_id_);
  unconfirmed_.clear();
  loans_.forget();
  if (is_known_ || !endpoint_.empty()) shared_.tell_lost(id_, why);
}

void ZmqPeer::say_goodbye() {
  const bool is_awaited = state_ == State::open ? !is_ending_ : state_ == State::greeting && !unconfirmed_.empty();
  is_leaving_ = is_awaited;
  if (is_leaving_) send_internal(pack(Bye{}));
}

// When both leave at once, each still waits for the other's answer.
void ZmqPeer::on_bye() {
  send_internal(pack(ByeToo{}));
  if (!is_leaving_) {
    lose("the connection " + name_ + " is lost: the other side closed it", shared_.options.linger_ms);
  }
}

void ZmqPeer::close() {
  *is_alive_ = false;
  dealer_.close(0);
  pipe_.reset();
  loans_.close();
}

// ---- sending -------------------------------------------------------------------------------------------------------

void ZmqPeer::send(Message message) {
  if (state_ == State::lost) return;
  is_known_ = true;
  std::vector<Bytes> frames;
  Bytes reference = loans_.lend(&message);
  if (!reference.empty()) frames = {Bytes(), std::move(reference)};
  frames.push_back(std::move(message.head));
  for (Bytes& attachment : message.attachments) frames.push_back(std::move(attachment));
  send_frames(std::move(frames));
}

void ZmqPeer::send_internal(Bytes content) { send_frames({Bytes(), std::move(content)}); }

void ZmqPeer::send_frames(std::vector<Bytes> frames) {
  if (!write(frames)) {
    end();
  } else if (state_ == State::greeting) {
    unconfirmed_.push_back(std::move(frames));
  }
}

// False: nobody is at the other end any more. Between two tries to connect there is no socket; the frames are sent
// when there is one again.
bool ZmqPeer::write(const std::vector<Bytes>& frames) {
  if (pipe_ != nullptr) return pipe_->send(frames);
  if (!routing_id_.empty()) return shared_.door.send(routing_id_, frames);
  return dealer_.is_open() ? dealer_.send(frames) : state_ == State::greeting;
}

}  // namespace geomx
