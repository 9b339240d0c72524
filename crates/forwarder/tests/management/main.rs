//! Management as programs see it: Interests in by a local face, Data out by it.

mod announcements;
mod authority;
mod commands;
mod datasets;
mod events;
mod face_creation;
mod formats;
mod hostile;
mod router;
