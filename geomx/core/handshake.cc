// See handshake.h.
#include "handshake.h"

#include <algorithm>

namespace geomx {

namespace {

constexpr size_t max_reason = 400;
constexpr size_t max_pipe_name = 100;  // an abstract socket's has at most 107
constexpr size_t max_entries = 65536;
constexpr size_t reference_size = 32;

class Writer {
 public:
  explicit Writer(const char (&magic)[5]) { raw(magic, 4); }
  template <typename T>
  Writer& number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    return *this;
  }
  Writer& raw(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  Writer& offer(const MemoryOffer& offer) {
    raw(offer.host.data(), offer.host.size()).raw(offer.nonce.data(), offer.nonce.size());
    return number(offer.pid).number(offer.fd);
  }
  Bytes bytes() const { return Bytes::copy(bytes_); }

 private:
  std::string bytes_;
};

// Reads what it was told to; `is_good` and at the end of the bytes, or the whole is malformed.
class Reader {
 public:
  Reader(const Bytes& bytes, const char (&magic)[5]) : bytes_(bytes) {
    is_good_ = bytes.size() >= 4 && std::memcmp(bytes.data(), magic, 4) == 0;
    at_ = 4;
  }
  size_t left() const { return is_good_ ? bytes_.size() - at_ : 0; }
  bool is_complete() const { return is_good_ && at_ == bytes_.size(); }
  template <typename T>
  Reader& number(T* value) {
    uint8_t raw_bytes[sizeof(T)] = {};
    raw(raw_bytes, sizeof(T));
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(T); ++i) number |= uint64_t{raw_bytes[i]} << (8 * i);
    *value = static_cast<T>(number);
    return *this;
  }
  Reader& raw(void* to, size_t size) {
    if (left() < size) is_good_ = false;
    if (!is_good_) return *this;
    std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
    return *this;
  }
  Reader& offer(MemoryOffer* offer) {
    raw(offer->host.data(), offer->host.size()).raw(offer->nonce.data(), offer->nonce.size());
    return number(&offer->pid).number(&offer->fd);
  }

 private:
  const Bytes& bytes_;
  size_t at_ = 0;
  bool is_good_ = false;
};

}  // namespace

Bytes pack(const Hello& hello) {
  return Writer("GXH1").number(hello.version).raw(hello.proof.data(), hello.proof.size()).offer(hello.offer).bytes();
}

Bytes pack(const Welcome& welcome) {
  return Writer("GXW1")
      .raw(welcome.proof.data(), welcome.proof.size())
      .offer(welcome.offer)
      .number(uint8_t{welcome.can_read_yours})
      .bytes();
}

Bytes pack(const Refusal& refusal) {
  const std::string why = refusal.why.substr(0, max_reason);
  return Writer("GXN1").raw(why.data(), why.size()).bytes();
}

Bytes pack(const CanRead&) { return Writer("GXL1").bytes(); }
Bytes pack(const PipeOffer& offer) {
  return Writer("GXP1").raw(offer.secret.data(), offer.secret.size()).raw(offer.name.data(), offer.name.size()).bytes();
}

Bytes pack(const PipeFollows&) { return Writer("GXP2").bytes(); }
Bytes pack(const Bye&) { return Writer("GXE1").bytes(); }
Bytes pack(const ByeToo&) { return Writer("GXE2").bytes(); }

Bytes pack(const Blocks& blocks) {
  Writer writer("GXB1");
  for (const BlockReference& block : blocks.blocks) {
    writer.number(block.loan).number(block.attachment).number(block.fd).number(block.offset).number(block.size);
  }
  return writer.bytes();
}

Bytes pack(const Returns& returns) {
  Writer writer("GXR1");
  for (uint64_t loan : returns.loans) writer.number(loan);
  return writer.bytes();
}

std::optional<Hello> parse_hello(const Bytes& bytes) {
  Hello hello;
  Reader reader(bytes, "GXH1");
  reader.number(&hello.version);
  // Another version's hello is told apart from garbage, whatever follows.
  if (reader.left() != 0 && hello.version != handshake_version) return hello;
  reader.raw(hello.proof.data(), hello.proof.size()).offer(&hello.offer);
  return reader.is_complete() ? std::optional<Hello>(hello) : std::nullopt;
}

std::optional<Welcome> parse_welcome(const Bytes& bytes) {
  Welcome welcome;
  uint8_t can_read = 0;
  Reader reader(bytes, "GXW1");
  reader.raw(welcome.proof.data(), welcome.proof.size()).offer(&welcome.offer).number(&can_read);
  welcome.can_read_yours = can_read == 1;
  return reader.is_complete() && can_read <= 1 ? std::optional<Welcome>(welcome) : std::nullopt;
}

std::optional<Refusal> parse_refusal(const Bytes& bytes) {
  Refusal refusal;
  Reader reader(bytes, "GXN1");
  if (reader.left() > max_reason) return std::nullopt;
  refusal.why.resize(reader.left());
  reader.raw(refusal.why.data(), refusal.why.size());
  // It ends up in logs and terminals.
  std::replace_if(
      refusal.why.begin(), refusal.why.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return reader.is_complete() ? std::optional<Refusal>(refusal) : std::nullopt;
}

bool is_can_read(const Bytes& bytes) { return Reader(bytes, "GXL1").is_complete(); }
std::optional<PipeOffer> parse_pipe_offer(const Bytes& bytes) {
  PipeOffer offer;
  Reader reader(bytes, "GXP1");
  reader.raw(offer.secret.data(), offer.secret.size());
  if (reader.left() > max_pipe_name) return std::nullopt;
  offer.name.resize(reader.left());
  reader.raw(offer.name.data(), offer.name.size());
  return reader.is_complete() && !offer.name.empty() ? std::optional<PipeOffer>(offer) : std::nullopt;
}

bool is_pipe_follows(const Bytes& bytes) { return Reader(bytes, "GXP2").is_complete(); }
bool is_bye(const Bytes& bytes) { return Reader(bytes, "GXE1").is_complete(); }
bool is_bye_too(const Bytes& bytes) { return Reader(bytes, "GXE2").is_complete(); }

std::optional<Blocks> parse_blocks(const Bytes& bytes) {
  Blocks parsed;
  Reader reader(bytes, "GXB1");
  if (reader.left() % reference_size != 0 || reader.left() / reference_size > max_entries) return std::nullopt;
  parsed.blocks.resize(reader.left() / reference_size);
  for (BlockReference& block : parsed.blocks) {
    reader.number(&block.loan).number(&block.attachment).number(&block.fd).number(&block.offset).number(&block.size);
  }
  return reader.is_complete() && !parsed.blocks.empty() ? std::optional<Blocks>(std::move(parsed)) : std::nullopt;
}

std::optional<Returns> parse_returns(const Bytes& bytes) {
  Returns parsed;
  Reader reader(bytes, "GXR1");
  if (reader.left() % sizeof(uint64_t) != 0) return std::nullopt;
  parsed.loans.resize(reader.left() / sizeof(uint64_t));
  for (uint64_t& loan : parsed.loans) reader.number(&loan);
  return reader.is_complete() ? std::optional<Returns>(std::move(parsed)) : std::nullopt;
}

Digest hello_proof(const std::string& token) { return sha256("geomx hello " + token); }
Digest welcome_proof(const std::string& token) { return sha256("geomx welcome " + token); }

}  // namespace geomx
