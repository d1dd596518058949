// What two transports say to each other below the node's messages: who may come in, and which memory they share. Byte
// layouts and their checks; no sockets. Little-endian, fixed layouts; a changed one gets a new name.
//
// A join token keeps strangers and strays (another run's nodes, scanners) out. What is sent is a hash of it, the same
// in each direction's every greeting, so somebody who reads the traffic can repeat it: against eavesdroppers, use a VPN
// or ssh between the parties.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "buffer.h"
#include "sha256.h"

namespace geomx {

constexpr uint32_t handshake_version = 1;

// Where a process can be found by others on its host: they open /proc/<pid>/fd/<fd> and find the nonce.
struct MemoryOffer {
  std::array<uint8_t, 16> host{};   // the boot id
  std::array<uint8_t, 16> nonce{};  // what the file begins with
  uint32_t pid = 0;
  int32_t fd = -1;  // -1: nothing is offered
};

// First message of a connection, from who opened it.
struct Hello {
  uint32_t version = handshake_version;
  Digest proof{};
  MemoryOffer offer;
};
// Its answer.
struct Welcome {
  Digest proof{};
  MemoryOffer offer;
  bool can_read_yours = false;
};
// Or that.
struct Refusal {
  std::string why;
};
// From who opened the connection, after the welcome: your memory can be read here.
struct CanRead {};
// From who was connected to, once both can read each other's memory: messages may go past ZeroMQ (local_pipe.h).
struct PipeOffer {
  using Secret = std::array<uint8_t, 16>;
  std::string name;  // of the abstract socket
  Secret secret{};
};
// Whatever else is sent in this direction follows through the pipe.
struct PipeFollows {};
// The last message from this side: all that was sent before it should be read.
struct Bye {};
// It has been; nothing follows from here either. Only then is the connection closed: a TCP socket that is closed with
// something unread drops what it still had to send.
struct ByeToo {};

// Stands for an attachment of the message that follows: `size` bytes of a segment of the sender's memory.
struct BlockReference {
  uint64_t loan = 0;        // to be named when it is given back
  uint32_t attachment = 0;  // its place among the message's attachments
  int32_t fd = -1;
  uint64_t offset = 0, size = 0;
};
struct Blocks {
  std::vector<BlockReference> blocks;
};
struct Returns {
  std::vector<uint64_t> loans;
};

Bytes pack(const Hello&);
Bytes pack(const Welcome&);
Bytes pack(const Refusal&);
Bytes pack(const CanRead&);
Bytes pack(const PipeOffer&);
Bytes pack(const PipeFollows&);
Bytes pack(const Bye&);
Bytes pack(const ByeToo&);
Bytes pack(const Blocks&);
Bytes pack(const Returns&);

// Nothing: these bytes are not of that kind, or malformed.
std::optional<Hello> parse_hello(const Bytes&);
std::optional<Welcome> parse_welcome(const Bytes&);
std::optional<Refusal> parse_refusal(const Bytes&);
bool is_can_read(const Bytes&);
std::optional<PipeOffer> parse_pipe_offer(const Bytes&);
bool is_pipe_follows(const Bytes&);
bool is_bye(const Bytes&);
bool is_bye_too(const Bytes&);
std::optional<Blocks> parse_blocks(const Bytes&);
std::optional<Returns> parse_returns(const Bytes&);

// The two directions differ, so a hello can't be sent back as a welcome.
Digest hello_proof(const std::string& token);
Digest welcome_proof(const std::string& token);

}  // namespace geomx
