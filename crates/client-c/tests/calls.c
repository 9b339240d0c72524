/* Each call of whimbrel.h between two real hosts: a row of the table in docs/programs.md each.
   calls SOCKET-HERE SOCKET-THERE FOLDER */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "whimbrel.h"

static whimbrel here, there;
static whimbrel_name here_name, there_name;
static const char *folder, *here_socket;

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, whimbrel_error());     \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* Waits until one of the two programs has something to do, and does it. */
static void work(void) {
    struct pollfd both[2] = {{whimbrel_fd(here), POLLIN, 0}, {whimbrel_fd(there), POLLIN, 0}};
    poll(both, 2, 5);
    whimbrel_process(here);
    whimbrel_process(there);
}

/* Repeats a call until it says something else than WHIMBREL_AGAIN. */
#define AWAIT(result, call)                                              \
    do {                                                                 \
        int tries = 0;                                                   \
        while ((result = (call)) == WHIMBREL_AGAIN && tries++ < 24000)   \
            work();                                                      \
    } while (0)

static uint8_t *noise(size_t length, unsigned seed) {
    uint8_t *bytes = malloc(length + 1);
    uint32_t state = seed * 2 + 1;
    for (size_t at = 0; at < length; at++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes[at] = (uint8_t)state;
    }
    return bytes;
}

/* Reads all of a transfer and compares. */
static void read_all(whimbrel from, uint32_t transfer, const uint8_t *expected, size_t length) {
    uint8_t *buffer = malloc(length + 100000);
    size_t filled = 0, count = 0;
    for (;;) {
        int result;
        AWAIT(result, whimbrel_read(from, transfer, buffer + filled, 77777, &count));
        CHECK(result == WHIMBREL_OK || result == WHIMBREL_END);
        if (result == WHIMBREL_END) break;
        filled += count;
        CHECK(filled <= length);
    }
    CHECK(filled == length && memcmp(buffer, expected, length) == 0);
    free(buffer);
}

static whimbrel_name publish(const uint8_t *bytes, size_t length, const char *name) {
    whimbrel_name content;
    int result;
    CHECK(whimbrel_publish_bytes(there, bytes, length, name, NULL, &content) == WHIMBREL_OK);
    AWAIT(result, whimbrel_announced(there, &content));
    CHECK(result == WHIMBREL_OK);
    return content;
}

static void attach_and_name(void) {
    char text[65];
    whimbrel_name again;
    uint32_t question;
    size_t length;
    int result;
    static uint8_t report[1 << 20];
    CHECK(whimbrel_name_text(&here_name, text) == WHIMBREL_OK && strlen(text) == 64);
    CHECK(whimbrel_name_parse(text, &again) == WHIMBREL_OK);
    CHECK(memcmp(&again, &here_name, sizeof again) == 0);
    CHECK(whimbrel_status(here, &question) == WHIMBREL_OK);
    AWAIT(result, whimbrel_answer(here, question, report, sizeof report, &length));
    CHECK(result == WHIMBREL_OK && strlen((char *)report) == length && strstr((char *)report, text));
    CHECK(whimbrel_answer(here, question, report, sizeof report, &length) == WHIMBREL_OVER);
    whimbrel missing = 5;
    CHECK(whimbrel_attach("/nowhere/host.sock", 0, &missing) == WHIMBREL_NO_HOST && missing == 5);
    CHECK(strstr(whimbrel_error(), "no daemon answers on /nowhere/host.sock"));
}

static void publish_and_get_bytes(void) {
    size_t length = 3 * 1024 * 1024 + 5;
    uint8_t *bytes = noise(length, 1);
    whimbrel_name content = publish(bytes, length, "noise");
    uint32_t transfer;
    CHECK(whimbrel_get(here, &content, 0, NULL, &transfer) == WHIMBREL_OK);
    read_all(here, transfer, bytes, length);
    whimbrel_progress progress;
    CHECK(whimbrel_transfer(here, transfer, &progress) == WHIMBREL_OK);
    CHECK(progress.bytes == length && progress.length == length && progress.is_complete == 1);
    CHECK(whimbrel_cancel(here, transfer) == WHIMBREL_OK);
    content = publish(NULL, 0, NULL);
    CHECK(whimbrel_get(here, &content, 0, NULL, &transfer) == WHIMBREL_OK);
    read_all(here, transfer, bytes, 0);
    CHECK(whimbrel_withdraw(there, &content) == WHIMBREL_OK);
    CHECK(whimbrel_withdraw(there, &content) == WHIMBREL_OVER);
    free(bytes);
}

static void publish_and_get_a_file(void) {
    char path[4096];
    size_t length = 2 * 1024 * 1024;
    uint8_t *bytes = noise(length, 2);
    snprintf(path, sizeof path, "%s/from", folder);
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
    whimbrel_name content;
    int result;
    CHECK(whimbrel_publish_file(there, path, NULL, &content) == WHIMBREL_OK);
    AWAIT(result, whimbrel_announced(there, &content));
    CHECK(result == WHIMBREL_OK);
    uint32_t transfer;
    CHECK(whimbrel_get(here, &content, 0, NULL, &transfer) == WHIMBREL_OK);
    read_all(here, transfer, bytes, length);
    CHECK(whimbrel_publish_file(there, "/nowhere/file", NULL, &content) == WHIMBREL_FILE);
    CHECK(strstr(whimbrel_error(), "cannot read /nowhere/file"));
    CHECK(whimbrel_publish_file(there, folder, NULL, &content) == WHIMBREL_FILE);
    free(bytes);
}

static void get_in_pieces(void) {
    uint8_t *bytes = noise(100000, 3), buffer[1000];
    whimbrel_name content = publish(bytes, 100000, "pieces");
    uint32_t transfer;
    size_t count, filled = 0;
    int result;
    CHECK(whimbrel_get(here, &content, 0, NULL, &transfer) == WHIMBREL_OK);
    for (;;) {
        AWAIT(result, whimbrel_read(here, transfer, buffer, sizeof buffer, &count));
        if (result == WHIMBREL_END) break;
        CHECK(result == WHIMBREL_OK && memcmp(buffer, bytes + filled, count) == 0);
        filled += count;
    }
    CHECK(filled == 100000);
    CHECK(whimbrel_read(here, transfer, buffer, sizeof buffer, &count) == WHIMBREL_END && count == 0);
    free(bytes);
}

static void get_what_nobody_has(void) {
    whimbrel_name nobody;
    uint8_t buffer[100];
    size_t length;
    uint32_t transfer;
    int result;
    memset(&nobody, 7, sizeof nobody);
    CHECK(whimbrel_get(here, &nobody, 0, NULL, &transfer) == WHIMBREL_OK);
    AWAIT(result, whimbrel_read(here, transfer, buffer, sizeof buffer, &length));
    CHECK(result == WHIMBREL_FAILED && strstr(whimbrel_error(), "check the name"));
    CHECK(whimbrel_read(here, transfer, buffer, sizeof buffer, &length) == WHIMBREL_OVER);
    uint8_t *bytes = noise(5000, 4);
    whimbrel_name content = publish(bytes, 5000, "");
    CHECK(whimbrel_get(here, &content, 1000, NULL, &transfer) == WHIMBREL_OK);
    AWAIT(result, whimbrel_read(here, transfer, buffer, sizeof buffer, &length));
    if (result != WHIMBREL_FAILED) {
        CHECK(result == WHIMBREL_TOO_LONG);
        CHECK(strstr(whimbrel_error(), "5000 bytes long and the limit is 1000"));
    }
    free(bytes);
}

static void cancel_a_transfer(void) {
    size_t length = 32 * 1024 * 1024, count;
    uint8_t *bytes = noise(length, 5), buffer[10];
    whimbrel_name content = publish(bytes, length, "");
    uint32_t transfer;
    int result;
    CHECK(whimbrel_get(here, &content, 0, NULL, &transfer) == WHIMBREL_OK);
    AWAIT(result, whimbrel_read(here, transfer, buffer, sizeof buffer, &count));
    CHECK(result == WHIMBREL_OK && count == 10 && memcmp(buffer, bytes, 10) == 0);
    CHECK(whimbrel_cancel(here, transfer) == WHIMBREL_OK);
    whimbrel_progress progress;
    CHECK(whimbrel_read(here, transfer, buffer, sizeof buffer, &count) == WHIMBREL_OVER);
    CHECK(whimbrel_transfer(here, transfer, &progress) == WHIMBREL_OVER);
    CHECK(whimbrel_cancel(here, transfer) == WHIMBREL_OK);
    free(bytes);
}

static void send_and_receive(void) {
    size_t length = 2 * 1024 * 1024 + 1;
    uint8_t *bytes = noise(length, 6);
    whimbrel_options options = {.until_delivered = 1};
    uint32_t sent, received;
    whimbrel_offer offer;
    int result;
    CHECK(whimbrel_inbox(there, NULL, 0, 0) == WHIMBREL_OK);
    CHECK(whimbrel_send_bytes(here, &there_name, bytes, length, "report", &options, &sent) == WHIMBREL_OK);
    AWAIT(result, whimbrel_next_offer(there, &offer));
    CHECK(result == WHIMBREL_OK && offer.length == length && strcmp(offer.file_name, "report") == 0);
    CHECK(memcmp(&offer.sender, &here_name, sizeof here_name) == 0);
    CHECK(whimbrel_accept(there, &offer, &received) == WHIMBREL_OK);
    read_all(there, received, bytes, length);
    AWAIT(result, whimbrel_sent(here, sent));
    CHECK(result == WHIMBREL_OK);
    CHECK(whimbrel_accept(there, &offer, &received) == WHIMBREL_OVER);
    free(bytes);
}

static void refuse_by_rule_and_by_hand(void) {
    uint8_t *bytes = noise(5000, 7);
    whimbrel_options options = {.until_delivered = 1};
    uint32_t sent;
    whimbrel_offer offer;
    int result;
    CHECK(whimbrel_inbox(there, &here_name, 1, 4000) == WHIMBREL_OK);
    CHECK(whimbrel_send_bytes(here, &there_name, bytes, 5000, "long", &options, &sent) == WHIMBREL_OK);
    AWAIT(result, whimbrel_sent(here, sent));
    CHECK(result == WHIMBREL_REFUSED && strstr(whimbrel_error(), "longer than the receiver accepts"));
    CHECK(whimbrel_send_bytes(here, &there_name, bytes, 3000, "short", &options, &sent) == WHIMBREL_OK);
    AWAIT(result, whimbrel_next_offer(there, &offer));
    CHECK(result == WHIMBREL_OK && whimbrel_refuse(there, &offer, 9) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_refuse(there, &offer, 4) == WHIMBREL_OK);
    AWAIT(result, whimbrel_sent(here, sent));
    CHECK(result == WHIMBREL_REFUSED && strstr(whimbrel_error(), "the receiver cannot use it"));
    free(bytes);
}

static void message_a_channel(void) {
    uint8_t buffer[100];
    size_t length;
    whimbrel_name from;
    int result = WHIMBREL_AGAIN;
    CHECK(whimbrel_next_message(there, 77, &from, buffer, sizeof buffer, &length) == WHIMBREL_OVER);
    CHECK(whimbrel_listen(there, 77) == WHIMBREL_OK);
    for (int tries = 0; tries < 1000 && result == WHIMBREL_AGAIN; tries++) {
        CHECK(whimbrel_message(here, &there_name, 77, (const uint8_t *)"on my way", 9, NULL) == WHIMBREL_OK);
        whimbrel_wait(there, 100);
        result = whimbrel_next_message(there, 77, &from, buffer, sizeof buffer, &length);
    }
    CHECK(result == WHIMBREL_OK && length == 9 && memcmp(buffer, "on my way", 9) == 0);
    CHECK(memcmp(&from, &here_name, sizeof from) == 0);
    static uint8_t large[40000];
    CHECK(whimbrel_message(here, &there_name, 77, large, sizeof large, NULL) == WHIMBREL_ARGUMENT);
    CHECK(strstr(whimbrel_error(), "at most 32768 bytes"));
}

static void ping_a_name(void) {
    uint32_t question;
    char text[65];
    uint8_t answer[65];
    size_t length;
    int result;
    CHECK(whimbrel_ping(here, &there_name, &question) == WHIMBREL_OK);
    AWAIT(result, whimbrel_answer(here, question, answer, sizeof answer, &length));
    CHECK(result == WHIMBREL_OK && whimbrel_name_text(&there_name, text) == WHIMBREL_OK);
    CHECK(strcmp(text, (char *)answer) == 0);
}

static void choose_how_contents_travel(void) {
    size_t length = 100000, filled = 0, count;
    uint8_t *bytes = noise(length, 11), *buffer = malloc(length + 1);
    whimbrel_options options = {
        .chunk_size = 16384, .nack_timeout_ms = 2000, .reliability = "ack", .storage = "1 h", .service = "unicast",
        .delegate = 1, .until_delivered = 1,
    };
    whimbrel_name content;
    uint32_t transfer, sent;
    whimbrel_offer offer;
    int result;
    CHECK(whimbrel_publish_bytes(there, bytes, length, NULL, &options, &content) == WHIMBREL_OK);
    AWAIT(result, whimbrel_announced(there, &content));
    CHECK(result == WHIMBREL_OK);
    options.storage = "never";
    options.service = "multihoming";
    CHECK(whimbrel_get(here, &content, 0, &options, &transfer) == WHIMBREL_OK);
    for (;;) {
        AWAIT(result, whimbrel_read(here, transfer, buffer + filled, length - filled + 1, &count));
        if (result == WHIMBREL_END) break;
        CHECK(result == WHIMBREL_OK && count <= 16384);
        filled += count;
    }
    CHECK(filled == length && memcmp(buffer, bytes, length) == 0);
    options.storage = "2 h";
    options.service = NULL;
    CHECK(whimbrel_inbox(there, NULL, 0, 0) == WHIMBREL_OK);
    CHECK(whimbrel_send_bytes(here, &there_name, bytes, length, NULL, &options, &sent) == WHIMBREL_OK);
    AWAIT(result, whimbrel_next_offer(there, &offer));
    CHECK(result == WHIMBREL_OK && whimbrel_accept(there, &offer, &transfer) == WHIMBREL_OK);
    read_all(there, transfer, bytes, length);
    AWAIT(result, whimbrel_sent(here, sent));
    CHECK(result == WHIMBREL_OK);
    options.chunk_size = 1000;
    CHECK(whimbrel_get(here, &content, 0, &options, &transfer) == WHIMBREL_ARGUMENT);
    CHECK(strncmp(whimbrel_error(), "chunk_size", 10) == 0);
    free(bytes);
    free(buffer);
}

/* Reads a text that the test around this program has prepared. */
static void read_text(const char *name, char *text, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, (int)size, file) && fclose(file) == 0);
}

static void reach_services_and_groups(void) {
    char path[4096], text[1024];
    uint8_t buffer[100];
    size_t length;
    whimbrel_options options = {.service = "anycast"};
    whimbrel_name service, group;
    int result;
    snprintf(path, sizeof path, "%s/service", folder);
    CHECK(whimbrel_attach_service(there, path, &service) == WHIMBREL_OK);
    AWAIT(result, whimbrel_name_known(there, &service));
    CHECK(result == WHIMBREL_OK && whimbrel_listen(there, 78) == WHIMBREL_OK);
    result = WHIMBREL_AGAIN;
    for (int tries = 0; tries < 1000 && result == WHIMBREL_AGAIN; tries++) {
        CHECK(whimbrel_message(here, &service, 78, (const uint8_t *)"to the nearest", 14, &options) == WHIMBREL_OK);
        whimbrel_wait(there, 100);
        result = whimbrel_next_message(there, 78, NULL, buffer, sizeof buffer, &length);
    }
    CHECK(result == WHIMBREL_OK && length == 14 && memcmp(buffer, "to the nearest", 14) == 0);
    read_text("admission", text, sizeof text);
    for (int is_on = 1; is_on >= 0; is_on--) {
        CHECK(whimbrel_join_group(there, text, is_on, &group) == WHIMBREL_OK);
        AWAIT(result, whimbrel_name_known(there, &group));
        CHECK(result == WHIMBREL_OK);
    }
    read_text("another", text, sizeof text);
    CHECK(whimbrel_join_group(there, text, 1, &group) == WHIMBREL_OK);
    AWAIT(result, whimbrel_name_known(there, &group));
    CHECK(result == WHIMBREL_FAILED && strstr(whimbrel_error(), "not for this host"));
    CHECK(whimbrel_join_group(there, "00", 1, &group) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_attach_service(there, "/nowhere/key", &service) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_attach_service(there, NULL, &service) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_name_known(there, NULL) == WHIMBREL_ARGUMENT);
}

/* The test around this program restarts the host when it reads "restart", and writes a line when it is there. */
static void continue_after_the_host_restarts(void) {
    size_t length = 24 * 1024 * 1024, filled = 10, count;
    uint8_t *bytes = noise(length, 9), *buffer = malloc(length + 100);
    whimbrel_name content = publish(bytes, length, "");
    uint32_t transfer;
    char line[10];
    int result;
    CHECK(whimbrel_get(here, &content, 0, NULL, &transfer) == WHIMBREL_OK);
    AWAIT(result, whimbrel_read(here, transfer, buffer, 10, &count));
    CHECK(result == WHIMBREL_OK && count == 10);
    int descriptor = whimbrel_fd(here);
    printf("restart\n");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
    for (;;) {
        AWAIT(result, whimbrel_read(here, transfer, buffer + filled, length - filled + 1, &count));
        CHECK(result == WHIMBREL_OK || result == WHIMBREL_END);
        if (result == WHIMBREL_END) break;
        filled += count;
    }
    CHECK(filled == length && memcmp(buffer, bytes, length) == 0);
    CHECK(whimbrel_fd(here) == descriptor && whimbrel_is_connected(here) == 1);
    free(bytes);
    free(buffer);
}

static void detach_ends_everything(void) {
    whimbrel third;
    uint32_t transfer;
    CHECK(whimbrel_attach(here_socket, 0, &third) == WHIMBREL_OK);
    CHECK(whimbrel_get(third, &there_name, 0, NULL, &transfer) == WHIMBREL_OK);
    CHECK(whimbrel_detach(third) == WHIMBREL_OK);
    CHECK(whimbrel_detach(third) == WHIMBREL_CLOSED);
    CHECK(whimbrel_get(third, &there_name, 0, NULL, &transfer) == WHIMBREL_CLOSED);
    CHECK(strstr(whimbrel_error(), "attach first"));
    CHECK(whimbrel_fd(third) < 0);
}

static void misuse(void) {
    uint8_t byte = 0;
    size_t length;
    uint32_t number;
    whimbrel_offer offer;
    whimbrel_options options = {.proposed = 9};
    memset(&offer, 0, sizeof offer);
    CHECK(whimbrel_attach(here_socket, 0, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_name_parse(NULL, &here_name) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_name_parse("abc", &here_name) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_name_parse("abc", NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_name_text(NULL, (char *)&byte) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_name_text(&here_name, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_own_name(here, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_publish_bytes(here, NULL, 1, NULL, NULL, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_publish_bytes(here, &byte, SIZE_MAX, NULL, NULL, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_publish_bytes(here, &byte, 1, "\xff\xfe", NULL, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_publish_file(here, NULL, NULL, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_announced(here, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_withdraw(here, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_get(here, NULL, 0, NULL, &number) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_get(here, &here_name, 0, NULL, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_read(here, 1, NULL, 1, &length) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_read(here, 1, &byte, 0, &length) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_read(here, 1, &byte, 1, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_read(here, 12345, &byte, 1, &length) == WHIMBREL_OVER);
    CHECK(whimbrel_transfer(here, 1, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_send_bytes(here, NULL, &byte, 1, NULL, NULL, &number) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_send_bytes(here, &here_name, &byte, 1, NULL, NULL, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_send_bytes(here, &here_name, &byte, 1, NULL, &options, &number) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_send_file(here, &here_name, NULL, NULL, &number) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_sent(here, 12345) == WHIMBREL_OVER);
    CHECK(whimbrel_inbox(here, NULL, 1, 0) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_next_offer(here, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_accept(here, NULL, &number) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_accept(here, &offer, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_accept(here, &offer, &number) == WHIMBREL_OVER);
    CHECK(whimbrel_refuse(here, NULL, 1) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_message(here, NULL, 1, &byte, 1, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_next_message(here, 1, NULL, NULL, 1, &length) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_status(here, NULL) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_ping(here, NULL, &number) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_answer(here, 1, NULL, 1, &length) == WHIMBREL_ARGUMENT);
    CHECK(whimbrel_answer(here, 12345, &byte, 1, &length) == WHIMBREL_OVER);
    for (whimbrel handle = 1000; handle < 1003; handle++) {
        CHECK(whimbrel_process(handle) == WHIMBREL_CLOSED);
        CHECK(whimbrel_wait(handle, 0) == WHIMBREL_CLOSED);
        CHECK(whimbrel_cancel(handle, 1) == WHIMBREL_CLOSED);
        CHECK(whimbrel_listen(handle, 1) == WHIMBREL_CLOSED);
    }
    CHECK(whimbrel_detach(0) == WHIMBREL_CLOSED);
    CHECK(strcmp(whimbrel_code_text(WHIMBREL_CLOSED), "closed handle") == 0);
    CHECK(strcmp(whimbrel_code_text(99), "unknown code") == 0);
}

static void fork_and_attach_again(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        uint32_t number;
        whimbrel own;
        int result;
        if (whimbrel_status(here, &number) != WHIMBREL_FORKED) _exit(2);
        if (whimbrel_detach(here) != WHIMBREL_FORKED) _exit(3);
        if (whimbrel_attach(here_socket, 0, &own) != WHIMBREL_OK) _exit(4);
        while ((result = whimbrel_own_name(own, &here_name)) == WHIMBREL_AGAIN) whimbrel_wait(own, 1000);
        if (result != WHIMBREL_OK || whimbrel_detach(own) != WHIMBREL_OK) _exit(5);
        if (whimbrel_process(here) != WHIMBREL_CLOSED) _exit(6);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The parent's handle is as before. */
    ping_a_name();
}

static void noted(int signal) { (void)signal; }

static void a_signal_interrupts_the_wait(void) {
    struct sigaction action;
    int result;
    memset(&action, 0, sizeof action);
    action.sa_handler = noted;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    while ((result = whimbrel_wait(here, 60000)) == WHIMBREL_OK) {
    }
    CHECK(result == WHIMBREL_INTERRUPTED);
    while ((result = whimbrel_wait(here, 1)) == WHIMBREL_OK) {
    }
    CHECK(result == WHIMBREL_TIMED_OUT);
}

static void *waits(void *result) {
    while ((*(int *)result = whimbrel_wait(here, 100)) != WHIMBREL_CLOSED) {
    }
    return NULL;
}

static void close_while_another_thread_waits(void) {
    pthread_t thread;
    int result = 99;
    CHECK(pthread_create(&thread, NULL, waits, &result) == 0);
    usleep(20000);
    CHECK(whimbrel_detach(here) == WHIMBREL_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(result == WHIMBREL_CLOSED);
}

static const struct {
    const char *name;
    void (*run)(void);
} rows[] = {
    {"attach_and_name", attach_and_name},
    {"publish_and_get_bytes", publish_and_get_bytes},
    {"publish_and_get_a_file", publish_and_get_a_file},
    {"get_in_pieces", get_in_pieces},
    {"get_what_nobody_has", get_what_nobody_has},
    {"cancel_a_transfer", cancel_a_transfer},
    {"send_and_receive", send_and_receive},
    {"refuse_by_rule_and_by_hand", refuse_by_rule_and_by_hand},
    {"message_a_channel", message_a_channel},
    {"ping_a_name", ping_a_name},
    {"choose_how_contents_travel", choose_how_contents_travel},
    {"reach_services_and_groups", reach_services_and_groups},
    {"continue_after_the_host_restarts", continue_after_the_host_restarts},
    {"detach_ends_everything", detach_ends_everything},
    {"misuse", misuse},
    {"fork_and_attach_again", fork_and_attach_again},
    {"a_signal_interrupts_the_wait", a_signal_interrupts_the_wait},
    {"close_while_another_thread_waits", close_while_another_thread_waits},
};

int main(int count, char **arguments) {
    int result;
    if (count != 4) return 2;
    here_socket = arguments[1];
    folder = arguments[3];
    CHECK(whimbrel_attach(here_socket, 120000, &here) == WHIMBREL_OK);
    CHECK(whimbrel_attach(arguments[2], 120000, &there) == WHIMBREL_OK);
    AWAIT(result, whimbrel_own_name(here, &here_name));
    CHECK(result == WHIMBREL_OK);
    AWAIT(result, whimbrel_own_name(there, &there_name));
    CHECK(result == WHIMBREL_OK);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        printf("%s\n", rows[row].name);
        fflush(stdout);
        rows[row].run();
    }
    printf("all\n");
    return 0;
}
