//! How the C library's allocator treats the memory of chunks.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    allow(
        unsafe_code,
        reason = "glibc offers its allocator's settings through mallopt alone"
    )
)]

/// Blocks of this size and larger, in bytes, are mapped and unmapped one by one: more than the
/// longest chunk with its headers, 4 MiB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM: libc::c_int = 8 << 20;
/// Free bytes at the end of a heap above which it is given back: more than the chunks that a
/// transfer at full speed has in memory at one time, by default 16 of 1 MiB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_FREE: libc::c_int = 32 << 20;

/// Lets freed chunks be memory for the next ones. Left to itself, glibc returns them to the kernel,
/// which clears each page of the next chunk at a page fault: a fifth of a transfer's processor time.
///
/// Called at the start of a program; changes nothing once there are other threads, or with another
/// C library.
pub fn keep_freed_chunks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if is_only_thread() {
        // SAFETY: mallopt(3) takes two integers and is unsafe only beside other threads that
        // allocate; this is the only thread, and it starts none meanwhile.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE);
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn is_only_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}
