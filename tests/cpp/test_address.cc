// Addresses, names, port owners, and the digest that tokens are compared by.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/address.h"
#include "core/sha256.h"

namespace {

using namespace geomx;

std::string hex(const Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST_CASE("addresses are parsed and written back") {
  for (const std::string text : {"127.0.0.1:9092", "node_7:1", "[::1]:65535", "a.b.c:80"}) {
    HostPort parsed;
    REQUIRE(parse_address(text, &parsed).ok());
    CHECK(to_address(parsed.host, parsed.port) == text);
  }
}

TEST_CASE("what is no address is refused in a sentence") {
  for (const std::string text : {"", "host", "host:", ":80", "host:0", "host:65536", "host:8o", "::1:80", "host:-1"}) {
    HostPort parsed;
    CHECK(parse_address(text, &parsed).message() ==
          "expected host:port (an IPv6 address in brackets, a port from 1 to 65535) but got '" + text + "'");
  }
}

TEST_CASE("hosts: numeric ones stay, localhost prefers IPv4, unknown ones are an error at once") {
  std::string numeric;
  REQUIRE(resolve("127.0.0.1", false, &numeric).ok());
  CHECK(numeric == "127.0.0.1");
  REQUIRE(resolve("localhost", false, &numeric).ok());
  CHECK(is_this_host(numeric));
  REQUIRE(resolve("*", true, &numeric).ok());
  CHECK(numeric == "*");
  const Status status = resolve("no_such_host.invalid", false, &numeric);
  CHECK(status.message().find("unknown host 'no_such_host.invalid': ") == 0);
}

TEST_CASE("this host's addresses are told from others") {
  CHECK(is_this_host("127.0.0.1"));
  CHECK(is_this_host("127.8.9.1"));
  CHECK(is_this_host("::1"));
  CHECK(is_this_host("::ffff:127.0.0.1"));
  CHECK_FALSE(is_this_host("192.0.2.1"));
  CHECK_FALSE(is_this_host("2001:db8::1"));
  CHECK(check_route("127.0.0.1", 80).ok());
}

TEST_CASE("the owner of a port is named") {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(fd, 1) == 0);
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string owner = port_owner(ntohs(address.sin_port));
  CHECK(owner.find(" by process " + std::to_string(getpid()) + " (") == 0);
  close(fd);
}

TEST_CASE("sha256: the standard's own examples") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(is_equal(sha256("a"), sha256("a")));
  CHECK_FALSE(is_equal(sha256("a"), sha256("b")));
}

}  // namespace
