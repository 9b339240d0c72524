// Sends one file to a multicast group with NORM (RFC 5740), or receives one: the part of a file transfer that
// libnorm leaves to programs.
//
//   norm_file send GROUP PORT INTERFACE ID RATE FILE MEMBER...
//   norm_file receive GROUP PORT INTERFACE ID FOLDER
//
// ID and MEMBER are the numbers of nodes. RATE is in bit/s; 0 leaves it to NORM's congestion control. A receiver prints
// "ready", then "received PATH" when it has the file. The sender prints "sent" when each member has acknowledged it.
#include <normApi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// As in libnorm's own examples.
constexpr unsigned int BUFFER = 4 << 20;
constexpr unsigned short SEGMENT = 1400;
constexpr unsigned short BLOCK = 64;
constexpr unsigned short PARITY = 16;
// Octets. A socket's buffer is the kernel's default otherwise.
constexpr unsigned int SOCKET = 4 << 20;
// The first estimate of the round trip to the farthest member, s. The library begins with 0.5 s.
constexpr double FIRST_ROUND_TRIP = 0.05;
constexpr unsigned char HOPS = 32;

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "norm_file: %s\n", what);
    std::exit(1);
}

void say(const char *word) {
    std::puts(word);
    std::fflush(stdout);
}

void send(NormInstanceHandle instance, NormSessionHandle session, int count, char **rest) {
    const double rate = std::atof(rest[0]);
    if (rate > 0) {
        NormSetTxRate(session, rate);
    } else {
        NormSetCongestionControl(session, true);
    }
    NormSetGrttEstimate(session, FIRST_ROUND_TRIP);
    NormSetGroupSize(session, count);
    for (int member = 2; member < count; ++member) {
        NormAddAckingNode(session, std::strtoul(rest[member], nullptr, 10));
    }
    if (!NormStartSender(session, 1, BUFFER, SEGMENT, BLOCK, PARITY)) fail("cannot start the sender");
    NormSetTxSocketBuffer(session, SOCKET);
    const NormObjectHandle file = NormFileEnqueue(session, rest[1], "file", 4);
    if (file == NORM_OBJECT_INVALID) fail("cannot send the file");
    NormSetWatermark(session, file);
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type == NORM_TX_WATERMARK_COMPLETED) {
            if (NormGetAckingStatus(session) == NORM_ACK_SUCCESS) {
                say("sent");
                return;
            }
            // Members that have not answered are asked again.
            NormResetWatermark(session);
        }
    }
}

void receive(NormInstanceHandle instance, NormSessionHandle session, const char *folder) {
    NormSetCacheDirectory(instance, folder);
    if (!NormStartReceiver(session, BUFFER)) fail("cannot start the receiver");
    NormSetRxSocketBuffer(session, SOCKET);
    say("ready");
    NormEvent event;
    // It stays to acknowledge, until it is ended.
    while (NormGetNextEvent(instance, &event)) {
        if (event.type == NORM_RX_OBJECT_COMPLETED) {
            char path[4096] = "received ";
            if (!NormFileGetName(event.object, path + 9, sizeof path - 9)) fail("the file has no name");
            say(path);
        }
        if (event.type == NORM_RX_OBJECT_ABORTED) fail("the file was given up");
    }
}

} // namespace

int main(int count, char **words) {
    const bool sends = count >= 9 && !std::strcmp(words[1], "send");
    if (!sends && (count != 7 || std::strcmp(words[1], "receive"))) {
        fail("usage: norm_file send GROUP PORT INTERFACE ID RATE FILE MEMBER... | receive GROUP PORT INTERFACE ID FOLDER");
    }
    const NormInstanceHandle instance = NormCreateInstance();
    const unsigned short port = std::strtoul(words[3], nullptr, 10);
    const NormNodeId id = std::strtoul(words[5], nullptr, 10);
    const NormSessionHandle session = NormCreateSession(instance, words[2], port, id);
    if (session == NORM_SESSION_INVALID) fail("cannot create the session");
    NormSetMulticastInterface(session, words[4]);
    NormSetTTL(session, HOPS);
    if (sends) {
        send(instance, session, count - 6, words + 6);
    } else {
        receive(instance, session, words[6]);
    }
    NormDestroyInstance(instance);
    return 0;
}
