//! The options of a transfer, the same for `get`, `serve`, `push` and `message` [MFTP §4].

use clap::Args;
use whimbrel_client::stated::word;
use whimbrel_content::ChunkSize;
use whimbrel_core::units::{ByteSize, Span};
use whimbrel_mobilityfirst::local::{Delivery, Service, Storage, TransferOptions};
use whimbrel_mobilityfirst::wire::Reliability;

use crate::exit::{Exit, Failure};

/// The options of a transfer.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Transfer")]
pub(crate) struct TransferArguments {
    /// Chunk size, a power of two from 16 KiB to 4 MiB; by default as large as suits the path, up to 1 MiB. A
    /// source never exceeds its own setting
    #[arg(long, value_name = "SIZE")]
    chunk_size: Option<ByteSize>,
    /// "nack": the receiver reports missing chunks. "ack": it confirms each chunk, and the source retransmits
    /// unconfirmed ones; for short, urgent content. "dont-care": no retransmissions. By default nack; the
    /// source's choice overrides the receiver's
    #[arg(long, value_name = "nack|ack|dont-care", value_parser = word::<Reliability>)]
    reliability: Option<Reliability>,
    /// How long a chunk may be missing before it is requested again, as "2 s"; by default the receiving host
    /// decides
    #[arg(long, value_name = "DURATION", value_parser = Span::with_unit)]
    nack_timeout: Option<Span>,
    /// How long a router may store chunks that it cannot forward, as "2 h", or "never" to drop them; by
    /// default as long as the router allows
    #[arg(
        long,
        value_name = "default|never|DURATION",
        default_value = "default",
        hide_default_value = true
    )]
    storage: Storage,
    /// "unicast": one link at a time; "multihoming": divided among all links; "anycast": to the nearest host
    /// attached by this name; "multicast": to each member of the group of this name; "default": according to
    /// the host's policy
    #[arg(long, value_name = "default|unicast|multihoming|anycast|multicast", value_parser = word::<Service>,
        default_value = "default", hide_default_value = true)]
    service: Service,
}

impl TransferArguments {
    /// Returns what the user has chosen.
    pub(crate) fn options(&self) -> Result<TransferOptions, Failure> {
        let size = self.chunk_size.map(|size| ChunkSize::from_bytes(size.0));
        let size = size
            .transpose()
            .map_err(|error| Failure::new(Exit::Usage, format!("--chunk-size: {error}")))?;
        let options = TransferOptions {
            reliability: self.reliability,
            delivery: Delivery {
                storage: self.storage,
                service: self.service,
            },
            ..TransferOptions::default()
        };
        let timeout = self.nack_timeout.map(|timeout| timeout.0);
        Ok(options.with_nack_timeout(timeout).with_chunk_size(size))
    }

    /// Sends to each member of a group.
    pub(crate) fn choose_multicast(&mut self) -> Result<(), Failure> {
        let text = match (self.service, self.reliability) {
            (Service::Default | Service::Multicast, Some(Reliability::Ack)) => {
                "--reliability ack is for one receiver: the members of a group confirm a content when they have it"
            }
            (Service::Default | Service::Multicast, _) => {
                self.service = Service::Multicast;
                return Ok(());
            }
            _ => "a group gets what is sent to it with --service multicast",
        };
        Err(Failure::new(Exit::Usage, text))
    }

    /// Returns true for what each member of a group gets.
    pub(crate) fn is_multicast(&self) -> bool {
        self.service == Service::Multicast
    }

    /// Returns true if nothing is sent again.
    pub(crate) fn is_sent_once(&self) -> bool {
        self.reliability == Some(Reliability::DontCare)
    }
}
