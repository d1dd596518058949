// Any bytes as each of the transport's own messages: nothing but a clean yes or no, and what is taken packs back to
// the same bytes.
#include "core/handshake.h"
#include "core/status.h"

using namespace geomx;

namespace {

void expect_same(const Bytes& packed, const Bytes& input) {
  GX_CHECK(packed.text() == input.text(), "a message that was taken packs to other bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes input = Bytes::copy(data, size);
  if (const auto hello = parse_hello(input); hello && hello->version == handshake_version) {
    expect_same(pack(*hello), input);
  }
  if (const auto welcome = parse_welcome(input)) expect_same(pack(*welcome), input);
  if (const auto blocks = parse_blocks(input)) expect_same(pack(*blocks), input);
  if (const auto returns = parse_returns(input)) expect_same(pack(*returns), input);
  if (const auto offer = parse_pipe_offer(input)) expect_same(pack(*offer), input);
  parse_refusal(input);
  is_pipe_follows(input);
  is_can_read(input);
  is_bye(input);
  is_bye_too(input);
  return 0;
}
