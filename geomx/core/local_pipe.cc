// See local_pipe.h. A message is its number of frames (4 bytes), their sizes (8 bytes each) and the frames.
#include "local_pipe.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace geomx {

namespace {

constexpr size_t max_frames = 65536;
constexpr uint64_t max_frame_bytes = uint64_t{64} << 30;
constexpr size_t max_parts_a_call = 64;
constexpr size_t read_bytes = 64 << 10;
constexpr size_t max_unknown = 64;
constexpr int backlog = 1024;

socklen_t fill(sockaddr_un* address, const std::string& name) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address->sun_path + 1);  // a zero first: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

int open_socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

bool fill_randomly(PipeOffer::Secret* secret) {
  return getrandom(secret->data(), secret->size(), 0) == static_cast<ssize_t>(secret->size());
}

std::string hex(const PipeOffer::Secret& bytes) {
  std::string text;
  for (uint8_t byte : bytes) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}

}  // namespace

std::unique_ptr<LocalPipe> LocalPipe::connect(const PipeOffer& offer) {
  const int fd = open_socket();
  if (fd < 0) return nullptr;
  auto pipe = std::make_unique<LocalPipe>(fd);
  sockaddr_un address;
  const socklen_t size = fill(&address, offer.name);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) return nullptr;
  const ssize_t sent = ::send(fd, offer.secret.data(), offer.secret.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(offer.secret.size()) ? std::move(pipe) : nullptr;
}

LocalPipe::~LocalPipe() { ::close(fd_); }

bool LocalPipe::send(const Frames& frames) {
  Bytes head = Bytes::allocate(4 + 8 * frames.size());
  const uint32_t count = static_cast<uint32_t>(frames.size());
  std::memcpy(head.writable(), &count, 4);
  for (size_t i = 0; i < frames.size(); ++i) {
    const uint64_t size = frames[i].size();
    std::memcpy(head.writable() + 4 + 8 * i, &size, 8);
  }
  unsent_.push_back(std::move(head));
  for (const Bytes& frame : frames) {
    if (!frame.empty()) unsent_.push_back(frame);
  }
  return flush();
}

bool LocalPipe::flush() {
  while (!unsent_.empty()) {
    iovec parts[max_parts_a_call];
    const size_t count = std::min(unsent_.size(), max_parts_a_call);
    for (size_t i = 0; i < count; ++i) {
      const size_t skipped = i == 0 ? sent_of_first_ : 0;
      parts[i] = {unsent_[i].writable() + skipped, unsent_[i].size() - skipped};
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR || errno == ENOBUFS;
    sent_of_first_ += static_cast<size_t>(sent);
    while (!unsent_.empty() && sent_of_first_ >= unsent_.front().size()) {
      sent_of_first_ -= unsent_.front().size();
      unsent_.pop_front();
    }
  }
  return true;
}

LocalPipe::Found LocalPipe::receive(size_t max_bytes, const std::function<void(Frames)>& take) {
  for (size_t total = 0; total < max_bytes;) {
    if (received_.size() < num_received_ + read_bytes) received_.resize(num_received_ + read_bytes);
    const size_t room = received_.size() - num_received_;
    const ssize_t got = recv(fd_, received_.data() + num_received_, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN ? Found::nothing : Found::end;
    if (got == 0) return Found::end;
    num_received_ += static_cast<size_t>(got);
    total += static_cast<size_t>(got);
    while (take_message(take)) {
    }
    if (is_garbage_) return Found::garbage;
    if (num_taken_ == num_received_) num_taken_ = num_received_ = 0;
    if (static_cast<size_t>(got) < room) return Found::nothing;  // the kernel had no more
  }
  return Found::more;
}

bool LocalPipe::take_message(const std::function<void(Frames)>& take) {
  const size_t left = num_received_ - num_taken_;
  const uint8_t* at = received_.data() + num_taken_;
  uint32_t count = 0;
  if (left < 4) return false;
  std::memcpy(&count, at, 4);
  is_garbage_ = count == 0 || count > max_frames;
  const size_t head = 4 + 8 * size_t{count};
  if (is_garbage_ || left < head) return false;
  uint64_t total = head;
  std::vector<uint64_t> sizes(count);
  std::memcpy(sizes.data(), at + 4, 8 * size_t{count});
  for (uint64_t size : sizes) {
    is_garbage_ = is_garbage_ || size > max_frame_bytes;
    total += size;
  }
  if (is_garbage_) return false;
  if (left < total) {  // what is there moves to the front, and the rest of it gets its place at once, within reason
    std::memmove(received_.data(), at, left);
    num_taken_ = 0;
    num_received_ = left;
    received_.resize(std::max<size_t>(received_.size(), std::min<uint64_t>(total, 2 * received_.size())));
    return false;
  }
  Frames frames;
  size_t offset = head;
  for (uint64_t size : sizes) {
    frames.push_back(Bytes::copy(at + offset, size));
    offset += size;
  }
  num_taken_ += total;
  take(std::move(frames));
  return true;
}

std::unique_ptr<PipeListener> PipeListener::create() {
  PipeOffer::Secret random;
  const int fd = open_socket();
  if (fd < 0) return nullptr;
  std::unique_ptr<PipeListener> listener;
  if (fill_randomly(&random)) listener.reset(new PipeListener(fd, "geomx-" + hex(random)));
  if (listener == nullptr) {
    ::close(fd);
    return nullptr;
  }
  sockaddr_un address;
  const socklen_t size = fill(&address, listener->name_);
  const bool is_open = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd, backlog) == 0;
  return is_open ? std::move(listener) : nullptr;
}

PipeListener::~PipeListener() {
  ::close(fd_);
  for (int fd : unknown_) ::close(fd);
}

PipeOffer PipeListener::offer() const {
  PipeOffer offer;
  offer.name = name_;
  if (!fill_randomly(&offer.secret)) offer.name.clear();  // an empty name is never connected to
  return offer;
}

std::unique_ptr<LocalPipe> PipeListener::accept(const PipeOffer& offer) {
  for (int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); fd >= 0;
       fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) {
    unknown_.push_back(fd);
  }
  std::unique_ptr<LocalPipe> found;
  for (auto at = unknown_.begin(); at != unknown_.end() && found == nullptr; ++at) {
    PipeOffer::Secret shown;
    const ssize_t got = recv(*at, shown.data(), shown.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got != static_cast<ssize_t>(shown.size()) || shown != offer.secret) continue;
    recv(*at, shown.data(), shown.size(), MSG_DONTWAIT);
    found = std::make_unique<LocalPipe>(*at);
    unknown_.erase(at);
    break;
  }
  for (; unknown_.size() > max_unknown; unknown_.pop_front()) ::close(unknown_.front());  // strangers
  return found;
}

}  // namespace geomx
