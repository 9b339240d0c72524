/* The interface of Whimbrel for programs in C. See docs/programs.md.

   A program attaches to the host of its machine and asks for transfers. It never waits in a call but in
   whimbrel_wait: its event loop may watch the descriptor of whimbrel_fd instead and call whimbrel_process.

   One handle is used by one thread at a time. No call is interrupted by a callback: there are none.
   A call that fails returns a negative code; whimbrel_error has the text. NULL is an argument that fails. */

#ifndef WHIMBREL_H
#define WHIMBREL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The result of a call. Failures are negative.
 */
typedef enum {
  /*
   Done.
   */
  WHIMBREL_OK = 0,
  /*
   All bytes of a content were read.
   */
  WHIMBREL_END = 1,
  /*
   Nothing yet: call whimbrel_wait, then try again.
   */
  WHIMBREL_AGAIN = -1,
  /*
   An argument is NULL, too long, or not valid.
   */
  WHIMBREL_ARGUMENT = -2,
  /*
   The handle is closed, or was never opened.
   */
  WHIMBREL_CLOSED = -3,
  /*
   The handle belongs to the process that this one was forked from.
   */
  WHIMBREL_FORKED = -4,
  /*
   No host daemon answers, or it has gone for too long.
   */
  WHIMBREL_NO_HOST = -5,
  /*
   The host, or a router, has given the transfer up.
   */
  WHIMBREL_FAILED = -6,
  /*
   The receiver has refused the content.
   */
  WHIMBREL_REFUSED = -7,
  /*
   The content is longer than the program's limit.
   */
  WHIMBREL_TOO_LONG = -8,
  /*
   A file cannot be read.
   */
  WHIMBREL_FILE = -9,
  /*
   Nothing has happened in the time that whimbrel_wait was given.
   */
  WHIMBREL_TIMED_OUT = -10,
  /*
   A signal has interrupted whimbrel_wait.
   */
  WHIMBREL_INTERRUPTED = -11,
  /*
   The transfer or question is over, or was never begun.
   */
  WHIMBREL_OVER = -12,
  /*
   The buffer is too small; the length that is needed is in `length`.
   */
  WHIMBREL_SMALL = -13,
  /*
   A fault in this library.
   */
  WHIMBREL_FAULT = -14,
} whimbrel_code;

/*
 A program that is attached to a host; 0 is none.
 */
typedef uint64_t whimbrel;

/*
 A name: of a host, a router or a content.
 */
typedef struct {
  /*
   Its bytes.
   */
  uint8_t bytes[32];
} whimbrel_name;

/*
 How a content is fetched, published or sent, and a message is sent. What is 0 or NULL is left open, so that
 `{0}` is the same as no options. Words are those of the command line.
 */
typedef struct {
  /*
   The chunk size in bytes: a power of two from 16 KiB to 4 MiB; 0 for as large as the path affords.
   */
  uint64_t chunk_size;
  /*
   How long a chunk may be missing before it is requested again, in milliseconds.
   */
  uint64_t nack_timeout_ms;
  /*
   "nack", "ack" or "dont-care".
   */
  const char *reliability;
  /*
   How long a router may store what it cannot forward: "default", "never" or a time such as "2 h".
   */
  const char *storage;
  /*
   "default", "unicast", "multihoming", "anycast" or "multicast".
   */
  const char *service;
  /*
   Of a content that is published or sent: not 0 if the access router keeps copies and answers for them.
   */
  uint8_t delegate;
  /*
   Of a sent content. 0: it is over when the first router has all of it; else when the receiver has it.
   */
  uint8_t until_delivered;
  /*
   Of a sent content, the use that the receiver is told: 0 a file, 1 a note for a person.
   */
  uint8_t proposed;
} whimbrel_options;

/*
 How far a transfer is.
 */
typedef struct {
  /*
   Bytes that have arrived, or that the first router has taken.
   */
  uint64_t bytes;
  /*
   Of a sent content, bytes that routers store because the receiver is away.
   */
  uint64_t stored;
  /*
   Of a fetched content, its length; 0 until it is known.
   */
  uint64_t length;
  /*
   Of a fetched content: 0 requested, 1 flowing, 2 stalled, 3 no router responds, 4 the host is away. Of a sent
   one: 0 leaving, 1 taken by the first router, 2 delivered, 3 and above refused.
   */
  uint32_t state;
  /*
   Of a fetched content: 1 when all of it has arrived.
   */
  uint8_t is_complete;
} whimbrel_progress;

/*
 A content that a sender offers.
 */
typedef struct {
  /*
   The sender, as its signature proves.
   */
  whimbrel_name sender;
  /*
   The sender's number for this offer.
   */
  uint64_t number;
  /*
   The content.
   */
  whimbrel_name content;
  /*
   Its length in bytes.
   */
  uint64_t length;
  /*
   The use that the sender proposes: 0 a file, 1 a note, 2 a folder as one.
   */
  uint8_t proposed;
  /*
   The name that the sender suggests, with a zero at its end; it must not be used as a path.
   */
  char file_name[256];
} whimbrel_offer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Attaches to the host daemon on `socket`, or to this user's or the system's if it is NULL, and writes a handle to
 `handle`. A host that goes may be away for `reconnect_ms` milliseconds before transfers fail; 0 stands for a minute.
 */
int whimbrel_attach(const char *socket,
                    uint64_t reconnect_ms,
                    whimbrel *handle);

/*
 Withdraws what is published, ends all transfers and closes the handle. What the network has taken is still
 delivered.
 */
int whimbrel_detach(whimbrel handle);

/*
 Returns a file descriptor that is readable when whimbrel_process has something to do; negative if it fails. It
 belongs to the handle and must not be read, written or closed. It stays the same when the host restarts.
 */
int whimbrel_fd(whimbrel handle);

/*
 Does all that can be done without waiting: events of the host, and chunks for those who fetch what is published.
 */
int whimbrel_process(whimbrel handle);

/*
 Waits until there is something to do, for at most `timeout_ms` milliseconds, or for ever if that is negative; then
 does it. Returns WHIMBREL_TIMED_OUT or WHIMBREL_INTERRUPTED, after a signal, if nothing was done.
 */
int whimbrel_wait(whimbrel handle,
                  int64_t timeout_ms);

/*
 Returns 1 while the host is there, 0 while it is away, and a code if that cannot be known.
 */
int whimbrel_is_connected(whimbrel handle);

/*
 Writes the host's name, by which others send to its programs, to `name`. WHIMBREL_AGAIN until the host has told it.
 */
int whimbrel_own_name(whimbrel handle,
                      whimbrel_name *name);

/*
 Attaches the host by the name of a key beside its own, for as long as this handle is open: what others send to that
 name with the service "anycast" reaches the nearest host that is attached by it. `key_file` is one of
 `whimbrel id new`. Writes the name to `name`; whimbrel_name_known says when others can use it.
 */
int whimbrel_attach_service(whimbrel handle,
                            const char *key_file,
                            whimbrel_name *name);

/*
 Joins a group with this host, or leaves it if `is_on` is 0. `admission` is the text that `whimbrel group admit`
 prints. A membership outlasts the program. Writes the group's name, to which others send with the service
 "multicast", to `name`; whimbrel_name_known says when the name service knows of it.
 */
int whimbrel_join_group(whimbrel handle,
                        const char *admission,
                        int is_on,
                        whimbrel_name *name);

/*
 WHIMBREL_OK once the name service knows of a service or a membership, WHIMBREL_AGAIN before, WHIMBREL_FAILED if it was
 refused.
 */
int whimbrel_name_known(whimbrel handle,
                        const whimbrel_name *name);

/*
 Reads a name of 64 hexadecimal digits.
 */
int whimbrel_name_parse(const char *text, whimbrel_name *name);

/*
 Writes a name as 64 hexadecimal digits and a zero to `text`, which has room for 65 bytes.
 */
int whimbrel_name_text(const whimbrel_name *name, char *text);

/*
 Says what a code means, in a word.
 */
const char *whimbrel_code_text(int code);

/*
 Returns the text of this thread's last failed call, in UTF-8: what happened, and what to do. It is valid until
 this thread's next failed call.
 */
const char *whimbrel_error(void);

/*
 Sends at most 32,768 bytes to the programs that listen to a channel at the receiver. They arrive at most once, and
 the sender is not told. Of `options`, which may be NULL, the storage and the service count.
 */
int whimbrel_message(whimbrel handle,
                     const whimbrel_name *destination,
                     uint32_t channel,
                     const uint8_t *data,
                     size_t length,
                     const whimbrel_options *options);

/*
 Receives the messages of a channel from now on.
 */
int whimbrel_listen(whimbrel handle, uint32_t channel);

/*
 Writes the next message of a channel to `buffer` and its length to `length`, and the sender's claim of its name to
 `from`, which may be NULL. WHIMBREL_AGAIN if there is none; the rest of a message that is longer than the buffer is
 lost, so that 32,768 bytes are enough.
 */
int whimbrel_next_message(whimbrel handle,
                          uint32_t channel,
                          whimbrel_name *from,
                          uint8_t *buffer,
                          size_t size,
                          size_t *length);

/*
 Asks the host for its report and writes the question's number to `question`. whimbrel_answer has a JSON object.
 */
int whimbrel_status(whimbrel handle,
                    uint32_t *question);

/*
 Sends an echo request and writes the question's number to `question`. whimbrel_answer has the name of the node that
 has answered.
 */
int whimbrel_ping(whimbrel handle,
                  const whimbrel_name *destination,
                  uint32_t *question);

/*
 Writes the answer to a question to `buffer`, as text with a zero at its end, and its length without that to
 `length`. WHIMBREL_AGAIN until it is there; WHIMBREL_SMALL if the buffer has no room, and then it is lost: 1 MiB is
 enough for a report.
 */
int whimbrel_answer(whimbrel handle,
                    uint32_t question,
                    uint8_t *buffer,
                    size_t size,
                    size_t *length);

/*
 Publishes a copy of `length` bytes and writes the content's name to `content`, which may be NULL. `file_name` is
 suggested to those who fetch it; it and `options` may be NULL.
 */
int whimbrel_publish_bytes(whimbrel handle,
                           const uint8_t *data,
                           size_t length,
                           const char *file_name,
                           const whimbrel_options *options,
                           whimbrel_name *content);

/*
 Publishes a file, which is hashed first and read again when somebody fetches it: it must not change meanwhile.
 `options` may be NULL.
 */
int whimbrel_publish_file(whimbrel handle,
                          const char *path,
                          const whimbrel_options *options,
                          whimbrel_name *content);

/*
 WHIMBREL_OK once the name service knows that a published content is here, WHIMBREL_AGAIN before.
 */
int whimbrel_announced(whimbrel handle, const whimbrel_name *content);

/*
 Ends a publication.
 */
int whimbrel_withdraw(whimbrel handle, const whimbrel_name *content);

/*
 Fetches a content of at most `limit` bytes (0 for any) and writes the transfer's number to `transfer`. `options` may
 be NULL.
 */
int whimbrel_get(whimbrel handle,
                 const whimbrel_name *content,
                 uint64_t limit,
                 const whimbrel_options *options,
                 uint32_t *transfer);

/*
 Writes the next bytes of a fetched content, verified and in order, to `buffer` and their number to `length`.
 WHIMBREL_AGAIN if none have arrived, WHIMBREL_END after the last. The source sends further ones only as these are read.
 */
int whimbrel_read(whimbrel handle,
                  uint32_t transfer,
                  uint8_t *buffer,
                  size_t size,
                  size_t *length);

/*
 Ends a transfer or forgets a question. A content that was sent is still delivered if the network has all of it.
 */
int whimbrel_cancel(whimbrel handle,
                    uint32_t transfer);

/*
 Writes how far a transfer is to `progress`.
 */
int whimbrel_transfer(whimbrel handle, uint32_t transfer, whimbrel_progress *progress);

/*
 Sends a copy of `length` bytes to a receiver and writes the transfer's number to `transfer`. `file_name` and
 `options` may be NULL.
 */
int whimbrel_send_bytes(whimbrel handle,
                        const whimbrel_name *destination,
                        const uint8_t *data,
                        size_t length,
                        const char *file_name,
                        const whimbrel_options *options,
                        uint32_t *transfer);

/*
 Sends a file, which is hashed first: it must not change before it has left.
 */
int whimbrel_send_file(whimbrel handle,
                       const whimbrel_name *destination,
                       const char *path,
                       const whimbrel_options *options,
                       uint32_t *transfer);

/*
 WHIMBREL_OK once a sent content is where its options want it, WHIMBREL_AGAIN before, WHIMBREL_REFUSED if the receiver
 refuses it.
 */
int whimbrel_sent(whimbrel handle,
                  uint32_t transfer);

/*
 Receives what others send without a request: from `count` senders only, or from anyone if that is 0, and at most
 `max_size` bytes each, or any length if that is 0. Others are refused. A second call replaces the rule.
 */
int whimbrel_inbox(whimbrel handle,
                   const whimbrel_name *senders,
                   size_t count,
                   uint64_t max_size);

/*
 Writes the next offer to `offer`; WHIMBREL_AGAIN if there is none. Decide with whimbrel_accept or whimbrel_refuse.
 */
int whimbrel_next_offer(whimbrel handle,
                        whimbrel_offer *offer);

/*
 Receives an offered content and writes the transfer's number to `transfer`. The sender is told that it has arrived
 when whimbrel_read has returned WHIMBREL_END.
 */
int whimbrel_accept(whimbrel handle,
                    const whimbrel_offer *offer,
                    uint32_t *transfer);

/*
 Refuses an offer. The sender is told `reason`: 1 not accepted, 2 too long, 3 the inbox is full, 4 not usable.
 */
int whimbrel_refuse(whimbrel handle, const whimbrel_offer *offer, int reason);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHIMBREL_H */
