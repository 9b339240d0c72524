//! A content on its way to one receiver.

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    LocalRequest, Publish, SendContent, SendState, TransferOptions,
};
use whimbrel_mobilityfirst::wire::OfferUse;

use crate::error::ProgramError;

/// How a content is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendOptions {
    /// The use that the receiver is told.
    pub proposed: OfferUse,
    /// Chunk size, reliability, NACK timeout, storage and service.
    pub transfer: TransferOptions,
    /// The access router keeps a copy of every chunk, and answers for them.
    pub delegate: bool,
    /// It is over when the receiver has it; otherwise when the first router has all of it.
    pub until_delivered: bool,
}

impl Default for SendOptions {
    /// Returns a file for as long as routers store it, over when the first router has all of it.
    fn default() -> SendOptions {
        SendOptions {
            proposed: OfferUse::File,
            transfer: TransferOptions::default(),
            delegate: false,
            until_delivered: false,
        }
    }
}

/// How far a sent content is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct SendProgress {
    /// Its state.
    pub state: SendState,
    /// Bytes that the first router has taken.
    pub taken: u64,
    /// Of these, bytes that routers store because the receiver is away.
    pub stored: u64,
}

/// A content that is sent.
#[derive(Debug)]
pub(super) struct OutgoingContent {
    destination: Guid,
    content: Publish,
    options: SendOptions,
    progress: SendProgress,
    failure: Option<ProgramError>,
    is_over: bool,
}

impl OutgoingContent {
    pub(super) fn new(
        destination: Guid,
        content: Publish,
        options: SendOptions,
    ) -> OutgoingContent {
        OutgoingContent {
            destination,
            content,
            options,
            progress: SendProgress {
                state: SendState::Leaving,
                taken: 0,
                stored: 0,
            },
            failure: None,
            is_over: false,
        }
    }

    pub(super) fn content(&self) -> Guid {
        self.content.content
    }

    /// Returns true while the host works on it.
    pub(super) fn is_open(&self) -> bool {
        !self.is_over && !self.progress.state.is_final()
    }

    fn is_where_it_should_be(&self) -> bool {
        let is_taken = matches!(self.progress.state, SendState::Taken | SendState::Kept);
        (is_taken && !self.options.until_delivered) || self.progress.state.is_final()
    }

    /// Returns true if copies of its chunks are to be kept.
    pub(super) fn is_delegated(&self) -> bool {
        self.options.delegate && self.is_open()
    }

    /// Returns the request, unless it is over.
    pub(super) fn request(&self, number: u32) -> Option<LocalRequest> {
        if self.is_over || self.is_where_it_should_be() {
            return None;
        }
        Some(LocalRequest::Send(SendContent {
            request: number,
            destination: self.destination,
            options: self.options.transfer,
            proposed: self.options.proposed,
            content: self.content.clone(),
        }))
    }

    pub(super) fn note(&mut self, progress: SendProgress) {
        self.progress = progress;
    }

    pub(super) fn fail(&mut self, error: ProgramError) {
        if !self.is_over && !self.is_where_it_should_be() {
            self.is_over = true;
            self.failure = Some(error);
        }
    }

    pub(super) fn progress(&self) -> SendProgress {
        self.progress
    }

    /// Returns the last state once it is over; `None` before. A failure is returned once.
    pub(super) fn outcome(&mut self) -> Result<Option<SendProgress>, ProgramError> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.is_over {
            return Err(ProgramError::Over);
        }
        let state = self.progress.state;
        let has_arrived = matches!(state, SendState::Delivered | SendState::DeliveredToSome);
        if state.is_final() && !has_arrived {
            let content = self.content();
            return Err(ProgramError::Refused { content, state });
        }
        Ok(self.is_where_it_should_be().then_some(self.progress))
    }
}
