/* The interface of Whimbrel for programs in C. See docs/programs.md.

   A program attaches to the host on its machine and requests transfers. Only whimbrel_wait blocks. An event loop
   can instead watch the file descriptor of whimbrel_fd and call whimbrel_process.

   A handle must not be used by two threads at a time. There are no callbacks.
   A call that fails returns a negative code, and whimbrel_error its text. A pointer must not be NULL unless its
   description permits it. */

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
   All bytes of the content have been read.
   */
  WHIMBREL_END = 1,
  /*
   Not ready yet: call whimbrel_wait, then try again.
   */
  WHIMBREL_AGAIN = -1,
  /*
   An argument is NULL, too long or invalid.
   */
  WHIMBREL_ARGUMENT = -2,
  /*
   The handle is closed, or was never opened.
   */
  WHIMBREL_CLOSED = -3,
  /*
   The handle belongs to the parent process, from which this one was forked.
   */
  WHIMBREL_FORKED = -4,
  /*
   No host daemon responds, or it has been away for longer than `reconnect_ms`.
   */
  WHIMBREL_NO_HOST = -5,
  /*
   The host or a router has ended the transfer.
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
   Nothing happened within the timeout of whimbrel_wait.
   */
  WHIMBREL_TIMED_OUT = -10,
  /*
   A signal interrupted whimbrel_wait.
   */
  WHIMBREL_INTERRUPTED = -11,
  /*
   There is no such transfer or question, or it is over.
   */
  WHIMBREL_OVER = -12,
  /*
   The buffer is too small; `length` has the required size.
   */
  WHIMBREL_SMALL = -13,
  /*
   An internal error of this library.
   */
  WHIMBREL_FAULT = -14,
} whimbrel_code;

/*
 A handle of a program that is attached to a host; 0 is no handle.
 */
typedef uint64_t whimbrel;

/*
 The name of a host, a router, a group or a content.
 */
typedef struct {
  /*
   Its bytes.
   */
  uint8_t bytes[32];
} whimbrel_name;

/*
 Options of transfers and messages. Fields that are 0 or NULL are unspecified, so `{0}` is the same as no options.
 Words are those of the command line.
 */
typedef struct {
  /*
   The chunk size in bytes: a power of two from 16 KiB to 4 MiB, or 0 to let the network decide.
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
   How long a router may store chunks that it cannot forward: "default", "never" or a time such as "2 h".
   */
  const char *storage;
  /*
   "default", "unicast", "multihoming", "anycast" or "multicast".
   */
  const char *service;
  /*
   For published and sent content: not 0 if the access router is to keep copies and serve them.
   */
  uint8_t delegate;
  /*
   For sent content, the end of the transfer. 0: the first router has all of it; otherwise: the receiver has all
   of it.
   */
  uint8_t until_delivered;
  /*
   For sent content, the use reported to the receiver: 0 a file, 1 a note to read.
   */
  uint8_t proposed;
} whimbrel_options;

/*
 The progress of a transfer.
 */
typedef struct {
  /*
   Bytes received, or bytes that the first router has taken.
   */
  uint64_t bytes;
  /*
   For sent content, bytes that routers store because the receiver is away.
   */
  uint64_t stored;
  /*
   For fetched content, its length in bytes; 0 until it is known.
   */
  uint64_t length;
  /*
   For fetched content: 0 requested, 1 flowing, 2 stalled, 3 no router responds, 4 the host is away. For sent
   content: 0 in progress, 1 taken by the first router, 2 delivered, 3 taken and kept by the access router;
   refused: 4 not accepted, 5 too long, 6 inbox full, 7 unusable; 8 lost in the network, 9 replaced by another
   transfer of the same content, 10 delivered to some members of a group and refused by all others.
   */
  uint32_t state;
  /*
   For fetched content: 1 once all of it has arrived.
   */
  uint8_t is_complete;
} whimbrel_progress;

/*
 A content offered by a sender.
 */
typedef struct {
  /*
   The sender's name, proven by its signature.
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
   The use that the sender proposes: 0 a file, 1 a note, 2 a folder as one content.
   */
  uint8_t proposed;
  /*
   The file name that the sender suggests, zero-terminated. It must not be used as a path.
   */
  char file_name[256];
} whimbrel_offer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Attaches to the host daemon on `socket`, or, if that is NULL, to this user's daemon or else the system's, and
 writes a handle to `handle`. If the daemon goes away, transfers fail after `reconnect_ms` milliseconds; 0 stands
 for a minute.
 */
int whimbrel_attach(const char *socket,
                    uint64_t reconnect_ms,
                    whimbrel *handle);

/*
 Withdraws all publications, ends all transfers and closes the handle. Content that the network has already taken
 is still delivered.
 */
int whimbrel_detach(whimbrel handle);

/*
 Returns a file descriptor that is readable when whimbrel_process has something to do; negative if it fails. It
 belongs to the handle and must not be read, written or closed. It stays the same when the host restarts.
 */
int whimbrel_fd(whimbrel handle);

/*
 Handles events from the host, and supplies chunks of published content, without waiting.
 */
int whimbrel_process(whimbrel handle);

/*
 Waits for at most `timeout_ms` milliseconds (without limit if negative) until there is something to do, and does
 it. If nothing was done, returns WHIMBREL_TIMED_OUT, or after a signal WHIMBREL_INTERRUPTED.
 */
int whimbrel_wait(whimbrel handle,
                  int64_t timeout_ms);

/*
 Returns 1 while the host daemon is connected, 0 while it is away, or a negative code.
 */
int whimbrel_is_connected(whimbrel handle);

/*
 Writes the host's name, the destination for others that send to it, to `name`. Returns WHIMBREL_AGAIN until the
 host has reported it.
 */
int whimbrel_own_name(whimbrel handle,
                      whimbrel_name *name);

/*
 Attaches the host under the name of a key in addition to its own, while this handle is open. Anycast to that name
 reaches the nearest host attached under it. `key_file` is a file made by `whimbrel id new`. Writes the name to
 `name`; whimbrel_name_known reports when others can use it.
 */
int whimbrel_attach_service(whimbrel handle,
                            const char *key_file,
                            whimbrel_name *name);

/*
 Makes this host a member of a group, or ends the membership if `is_on` is 0. `admission` is the text that
 `whimbrel group admit` prints. A membership outlasts the program. Writes the group's name, the destination for the
 service "multicast", to `name`; whimbrel_name_known reports when the membership is registered.
 */
int whimbrel_join_group(whimbrel handle,
                        const char *admission,
                        int is_on,
                        whimbrel_name *name);

/*
 Returns WHIMBREL_OK once a service or membership is registered with the name service, WHIMBREL_AGAIN before, and
 WHIMBREL_FAILED if it was refused.
 */
int whimbrel_name_known(whimbrel handle,
                        const whimbrel_name *name);

/*
 Reads a name of 64 hexadecimal digits.
 */
int whimbrel_name_parse(const char *text, whimbrel_name *name);

/*
 Writes a name as 64 hexadecimal digits and a zero to `text`, which must have room for 65 bytes.
 */
int whimbrel_name_text(const whimbrel_name *name, char *text);

/*
 Returns a short description of a code.
 */
const char *whimbrel_code_text(int code);

/*
 Returns the error text of this thread's last failed call, in UTF-8. It is valid until this thread's next failed
 call.
 */
const char *whimbrel_error(void);

/*
 Sends at most 32,768 bytes to the programs that listen to a channel at the receiver. A message arrives at most
 once and is not acknowledged. `options` may be NULL; only its storage and service apply.
 */
int whimbrel_message(whimbrel handle,
                     const whimbrel_name *destination,
                     uint32_t channel,
                     const uint8_t *data,
                     size_t length,
                     const whimbrel_options *options);

/*
 Subscribes to the messages of a channel.
 */
int whimbrel_listen(whimbrel handle, uint32_t channel);

/*
 Writes the next message of a channel to `buffer`, its length to `length`, and the name that the sender claims,
 without proof, to `from`, which may be NULL. Returns WHIMBREL_AGAIN if there is none. A message longer than the
 buffer is truncated; 32,768 bytes always suffice.
 */
int whimbrel_next_message(whimbrel handle,
                          uint32_t channel,
                          whimbrel_name *from,
                          uint8_t *buffer,
                          size_t size,
                          size_t *length);

/*
 Requests the host's status and writes the question's number to `question`. whimbrel_answer returns it as a JSON
 object.
 */
int whimbrel_status(whimbrel handle,
                    uint32_t *question);

/*
 Sends an echo request and writes the question's number to `question`. whimbrel_answer returns the name of the node
 that answered.
 */
int whimbrel_ping(whimbrel handle,
                  const whimbrel_name *destination,
                  uint32_t *question);

/*
 Writes the answer to a question to `buffer` as zero-terminated text, and its length without the zero to `length`.
 Returns WHIMBREL_AGAIN until there is one. If the buffer is too small, returns WHIMBREL_SMALL and discards the
 answer; 1 MiB is enough for a status.
 */
int whimbrel_answer(whimbrel handle,
                    uint32_t question,
                    uint8_t *buffer,
                    size_t size,
                    size_t *length);

/*
 Publishes a copy of `length` bytes and writes the content's name to `content`, which may be NULL. `file_name` is a
 suggestion to receivers. `file_name` and `options` may be NULL.
 */
int whimbrel_publish_bytes(whimbrel handle,
                           const uint8_t *data,
                           size_t length,
                           const char *file_name,
                           const whimbrel_options *options,
                           whimbrel_name *content);

/*
 Publishes a file. This call hashes the file; its chunks are read again when a receiver requests them, so it must
 not change. `options` may be NULL.
 */
int whimbrel_publish_file(whimbrel handle,
                          const char *path,
                          const whimbrel_options *options,
                          whimbrel_name *content);

/*
 Returns WHIMBREL_OK once a published content is registered with the name service, WHIMBREL_AGAIN before.
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
 Returns WHIMBREL_AGAIN if there are none yet and WHIMBREL_END after the last. Reading opens the flow-control
 window for further bytes.
 */
int whimbrel_read(whimbrel handle, uint32_t transfer, uint8_t *buffer, size_t size, size_t *length);

/*
 Ends a transfer or discards a question. A sent content is still delivered if the network has taken all of it.
 */
int whimbrel_cancel(whimbrel handle, uint32_t transfer);

/*
 Writes the progress of a transfer to `progress`.
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
 Sends a file. This call hashes the file, which must not change until it is sent.
 */
int whimbrel_send_file(whimbrel handle,
                       const whimbrel_name *destination,
                       const char *path,
                       const whimbrel_options *options,
                       uint32_t *transfer);

/*
 Returns WHIMBREL_OK once a sent content has reached the first router or, with `until_delivered`, the receiver;
 WHIMBREL_AGAIN before; WHIMBREL_REFUSED if the receiver refuses it.
 */
int whimbrel_sent(whimbrel handle,
                  uint32_t transfer);

/*
 Accepts offers of unrequested content: from `count` senders only, or from anyone if `count` is 0, and of at most
 `max_size` bytes each, or of any length if `max_size` is 0. Others are refused. A second call replaces the rule.
 */
int whimbrel_inbox(whimbrel handle,
                   const whimbrel_name *senders,
                   size_t count,
                   uint64_t max_size);

/*
 Writes the next offer to `offer`, or returns WHIMBREL_AGAIN if there is none. Follow it with whimbrel_accept or
 whimbrel_refuse.
 */
int whimbrel_next_offer(whimbrel handle,
                        whimbrel_offer *offer);

/*
 Accepts an offer and writes the transfer's number to `transfer`. The sender is told of the delivery when
 whimbrel_read has returned WHIMBREL_END.
 */
int whimbrel_accept(whimbrel handle, const whimbrel_offer *offer, uint32_t *transfer);

/*
 Refuses an offer. The sender is told `reason`: 1 not accepted, 2 too long, 3 the inbox is full, 4 not usable.
 */
int whimbrel_refuse(whimbrel handle, const whimbrel_offer *offer, int reason);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHIMBREL_H */
