//! A program at its host. Every call returns a [`Call`], which a thread waits for or a task awaits.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Weak};
#[cfg(feature = "tokio")]
use std::time::Duration;

use bytes::Bytes;
use whimbrel_core::Guid;
use whimbrel_gnrs::GroupAdmission;
use whimbrel_mobilityfirst::local::{ContentOffer, Delivery, MembershipChange, ServiceKey};

use crate::call::{Call, DriverShare};
use crate::driver::{AttachOptions, HostDriver, poll_readable};
use crate::error::{LocalError, ProgramError};
use crate::place::host_daemon_socket;
use crate::session::{
    Answer, GetOptions, OfferRule, ProgramSession, PublishOptions, Question, SendOptions,
};
use crate::source::ContentSource;
use crate::transfer::{ChannelReader, Download, IncomingOffer, OfferInbox, Publication, Upload};

/// The state of a transfer.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramTransfer {
    /// A fetched content.
    Get(crate::session::FetchedSoFar),
    /// A sent content.
    Send {
        /// The content.
        content: Guid,
        /// Its progress.
        progress: crate::session::SendProgress,
    },
}

/// A connection of this program to its host. Clones share the connection.
///
/// When the host restarts, everything continues: contents are published again, and transfers request the missing
/// chunks.
#[derive(Clone, Debug)]
pub struct Client(Arc<DriverShare>);

impl Client {
    /// Attaches to the host whose socket `WHIMBREL_SOCKET` names, or else to this user's, or else to the system's.
    pub fn attach() -> Result<Client, ProgramError> {
        Client::attach_at(&host_daemon_socket(), AttachOptions::default())
    }

    /// Attaches to the host that listens on `path`. A thread of the client serves published contents.
    pub fn attach_at(path: &Path, options: AttachOptions) -> Result<Client, ProgramError> {
        let client = Client::around(HostDriver::attach(path, options)?)?;
        let share = Arc::downgrade(&client.0);
        let thread = std::thread::Builder::new().name("whimbrel".into());
        thread
            .spawn(move || run_thread(&share))
            .map_err(LocalError::Io)?;
        Ok(client)
    }

    /// Attaches to the host that listens on `path`. A task of the current tokio runtime serves published contents.
    #[cfg(feature = "tokio")]
    pub fn attach_in_runtime(path: &Path, options: AttachOptions) -> Result<Client, ProgramError> {
        let driver = HostDriver::attach(path, options)?;
        let readable = driver
            .as_fd()
            .try_clone_to_owned()
            .map_err(LocalError::Io)?;
        #[expect(
            deprecated,
            reason = "unsound for a source that changes its descriptor; this one owns one for its life"
        )]
        let readable =
            tokio::io::unix::AsyncFd::with_interest(readable, tokio::io::Interest::READABLE)
                .map_err(LocalError::Io)?;
        let client = Client::around(driver)?;
        let share = Arc::downgrade(&client.0);
        tokio::spawn(run_task(readable, share));
        Ok(client)
    }

    fn around(driver: HostDriver) -> Result<Client, ProgramError> {
        let share = Arc::new(DriverShare::new(driver));
        Ok(Client(share))
    }

    fn share(&self) -> &Arc<DriverShare> {
        &self.0
    }

    /// Detaches: withdraws all publications and ends all transfers with an error. Bytes that the network has taken
    /// are still delivered. Dropping the last clone of a client, and everything that it has returned, does the same.
    pub fn detach(&self) {
        if let Some(mut driver) = self.share().lock() {
            driver.detach();
            drop(driver);
            self.share().notify();
        }
    }

    /// Returns true while the host daemon is connected.
    pub fn is_connected(&self) -> bool {
        let driver = self.share().lock();
        driver.is_some_and(|mut driver| driver.session().is_connected())
    }

    /// Fetches a content: `get(content_name)` of [MFTP §2]. Requests are sent at once; dropping the download ends
    /// them.
    pub fn get(&self, content: Guid, options: GetOptions) -> Result<Download, ProgramError> {
        let mut driver = self.share().enter()?;
        let number = driver.session().get(content, options);
        driver.flush();
        drop(driver);
        Ok(Download::new(self.share(), number, content, None))
    }

    /// Publishes a content; it is withdrawn when the publication is dropped.
    pub fn publish(&self, source: ContentSource) -> Result<Publication, ProgramError> {
        self.publish_with(source, PublishOptions::default())
    }

    /// The same, with options.
    pub fn publish_with(
        &self,
        source: ContentSource,
        options: PublishOptions,
    ) -> Result<Publication, ProgramError> {
        let mut driver = self.share().enter()?;
        let content = driver.publish(Arc::new(source), options);
        drop(driver);
        Ok(Publication::new(self.share(), content))
    }

    /// Publishes bytes. `file_name` is suggested to receivers and may be empty.
    pub fn publish_bytes(
        &self,
        bytes: impl Into<Bytes>,
        file_name: &str,
    ) -> Result<Publication, ProgramError> {
        self.publish(ContentSource::of_bytes(bytes.into(), file_name))
    }

    /// Publishes a file. Blocks while hashing it, about a second per gigabyte. The file must not change while it is
    /// published.
    pub fn publish_file(&self, path: &Path) -> Result<Publication, ProgramError> {
        self.publish(ContentSource::of_file(path)?)
    }

    /// Sends a content to a receiver that has not requested it: `send(destination, content)` of [MFTP §2]. Dropping
    /// the upload ends the transfer.
    pub fn send(
        &self,
        destination: Guid,
        source: ContentSource,
        options: SendOptions,
    ) -> Result<Upload, ProgramError> {
        let mut driver = self.share().enter()?;
        let content = source.content();
        let number = driver.send(destination, Arc::new(source), options);
        drop(driver);
        Ok(Upload::new(self.share(), number, content))
    }

    /// Sends at most 32,768 bytes to the programs that listen to a channel at the receiver. A message arrives at most
    /// once and is not acknowledged.
    pub fn message(
        &self,
        destination: Guid,
        channel: u32,
        payload: impl Into<Bytes>,
    ) -> Result<(), ProgramError> {
        self.message_with(destination, channel, Delivery::default(), payload)
    }

    /// As [`Client::message`], with the storage and service of `delivery`.
    pub fn message_with(
        &self,
        destination: Guid,
        channel: u32,
        delivery: Delivery,
        payload: impl Into<Bytes>,
    ) -> Result<(), ProgramError> {
        let mut driver = self.share().enter()?;
        driver
            .session()
            .message(destination, channel, delivery, payload.into())?;
        driver.flush();
        Ok(())
    }

    /// Attaches the host under the name of a key in addition to its own, while this client is attached.
    /// [`Service::Anycast`](crate::Service::Anycast) to that name reaches the nearest host attached under it. Returns
    /// the name once it is registered with the name service.
    pub fn attach_service(&self, key: ServiceKey) -> Result<Call<Guid>, ProgramError> {
        self.take_name(|session| session.attach_service(key))
    }

    /// Makes this host a member of a group [MFTP §3.5], which [`Service::Multicast`](crate::Service::Multicast) to
    /// the group's name reaches. A membership outlasts the program. Returns the group's name once the membership is
    /// registered with the name service.
    pub fn join_group(&self, admission: GroupAdmission) -> Result<Call<Guid>, ProgramError> {
        self.take_name(|session| session.set_membership(admission, MembershipChange::Join))
    }

    /// Ends the host's membership of a group. Returns the group's name.
    pub fn leave_group(&self, admission: GroupAdmission) -> Result<Call<Guid>, ProgramError> {
        self.take_name(|session| session.set_membership(admission, MembershipChange::Leave))
    }

    fn take_name(
        &self,
        take: impl FnOnce(&mut ProgramSession) -> Guid,
    ) -> Result<Call<Guid>, ProgramError> {
        let mut driver = self.share().enter()?;
        let name = take(driver.session());
        driver.flush();
        drop(driver);
        Ok(self
            .share()
            .call(move |driver| Ok(driver.session().is_name_known(name)?.then_some(name))))
    }

    /// Subscribes to the messages of a channel, until the reader is dropped.
    pub fn listen(&self, channel: u32) -> Result<ChannelReader, ProgramError> {
        let mut driver = self.share().enter()?;
        driver.session().listen(channel);
        driver.flush();
        drop(driver);
        Ok(ChannelReader::new(self.share(), channel))
    }

    /// Receives unrequested content: `recv` of [MFTP §4]. Offers that do not satisfy the rule are refused. A program
    /// has one inbox: a second call replaces the rule.
    pub fn inbox(&self, rule: OfferRule) -> Result<OfferInbox, ProgramError> {
        let mut driver = self.share().enter()?;
        driver.session().take_offers(rule);
        driver.flush();
        drop(driver);
        Ok(OfferInbox::new(self.share()))
    }

    /// Returns an offer that the inbox has returned, as one of this program.
    pub fn offer(&self, offer: ContentOffer) -> IncomingOffer {
        IncomingOffer::new(self.share(), offer)
    }

    /// Returns the host's report as JSON: its name (`guid`), links and transfers.
    pub fn status(&self) -> Result<Call<String>, ProgramError> {
        self.ask(Question::Status, |answer| match answer {
            Answer::Status(json) => Some(json),
            _ => None,
        })
    }

    /// Returns the host's name, the destination for others that send to it.
    pub fn name(&self) -> Result<Call<Guid>, ProgramError> {
        self.ask(Question::Status, |answer| match answer {
            Answer::Status(json) => {
                let report: serde_json::Value = serde_json::from_str(&json).ok()?;
                report["guid"].as_str()?.parse().ok()
            }
            _ => None,
        })
    }

    /// Sends an echo request to a name. Returns the name of the node that answers.
    pub fn ping(&self, destination: Guid) -> Result<Call<Guid>, ProgramError> {
        let padding = 0;
        let question = Question::Ping {
            destination,
            padding,
        };
        self.ask(question, |answer| match answer {
            Answer::Pong(from) => Some(from),
            _ => None,
        })
    }

    fn ask<T: 'static>(
        &self,
        question: Question,
        read: impl Fn(Answer) -> Option<T> + Send + 'static,
    ) -> Result<Call<T>, ProgramError> {
        let mut driver = self.share().enter()?;
        let number = driver.session().ask(question);
        driver.flush();
        drop(driver);
        let guard = crate::transfer::NumberGuard::new(self.share(), number);
        Ok(self.share().call(
            move |driver| match driver.session().take_answer(guard.number()) {
                None => Ok(None),
                Some(Answer::Failed(error)) => Err(error),
                Some(answer) => match read(answer) {
                    Some(result) => Ok(Some(result)),
                    None => Err(LocalError::Protocol("another answer".to_owned()).into()),
                },
            },
        ))
    }

    /// Returns the state of each transfer of this program.
    pub fn transfers(&self) -> Vec<ProgramTransfer> {
        let Some(mut driver) = self.share().lock() else {
            return Vec::new();
        };
        let session = driver.session();
        let (requested, sent) = session.transfers();
        let gets = requested
            .iter()
            .filter_map(|number| session.get_progress(*number));
        let mut reports: Vec<ProgramTransfer> = gets.map(ProgramTransfer::Get).collect();
        reports.extend(sent.iter().filter_map(|number| {
            Some(ProgramTransfer::Send {
                content: session.content_of(*number)?,
                progress: session.send_progress(*number)?,
            })
        }));
        reports
    }
}

/// Serves a client until it, and all that it has returned, is dropped.
fn run_thread(share: &Weak<DriverShare>) {
    let readable = share.upgrade().and_then(|share| {
        let driver = share.lock()?;
        driver.as_fd().try_clone_to_owned().ok()
    });
    let Some(readable) = readable else {
        return;
    };
    loop {
        match poll_readable(readable.as_fd(), None) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return,
            _ => {}
        }
        match share.upgrade() {
            Some(share) if share.process() => {}
            _ => return,
        }
    }
}

#[cfg(feature = "tokio")]
async fn run_task(
    readable: tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>,
    share: Weak<DriverShare>,
) {
    loop {
        let Ok(mut ready) = readable.readable().await else {
            return;
        };
        match share.upgrade() {
            Some(share) if share.process() => {}
            _ => return,
        }
        // tokio is told of edges: a descriptor that is still readable is looked at again.
        if !poll_readable(readable.get_ref().as_fd(), Some(Duration::ZERO)).unwrap_or(false) {
            ready.clear_ready();
        }
    }
}
