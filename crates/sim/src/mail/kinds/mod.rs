//! The kinds of mail, one file per family.

mod alert;
mod auto_reply;
mod body;
mod bounce;
mod conversation;
mod forward;
mod invitation;
mod list_post;
mod newsletter;
mod shop_notice;

use super::compose_context::ComposeContext;
use super::letter::Draft;
use super::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MailKind {
    Topic,
    Reply,
    Forward,
    /// The forwarded message is attached as a message.
    ForwardAttached,
    Newsletter,
    Order,
    Shipping,
    Invoice,
    Receipt,
    PasswordReset,
    Alert,
    Bounce,
    Invitation,
    Away,
    ListPost,
}

impl MailKind {
    /// The weights of the kinds in an ordinary mailbox.
    pub const ORDINARY: [(Self, u32); 15] = [
        (Self::Topic, 20),
        (Self::Reply, 30),
        (Self::Forward, 4),
        (Self::ForwardAttached, 2),
        (Self::Newsletter, 12),
        (Self::Order, 3),
        (Self::Shipping, 3),
        (Self::Invoice, 3),
        (Self::Receipt, 3),
        (Self::PasswordReset, 2),
        (Self::Alert, 5),
        (Self::Bounce, 2),
        (Self::Invitation, 4),
        (Self::Away, 2),
        (Self::ListPost, 5),
    ];

    /// Picks a kind that can have an attachment.
    pub fn carrying(rng: &mut Rng) -> Self {
        match rng.below(20) {
            0..9 => Self::Topic,
            9..15 => Self::Reply,
            15..17 => Self::Forward,
            _ => Self::Invoice,
        }
    }
}

pub fn write(kind: MailKind, mut context: ComposeContext<'_>) -> Draft {
    let context = &mut context;
    match kind {
        MailKind::Topic => conversation::topic(context),
        // Without a thread to answer or forward, a new topic is begun.
        MailKind::Reply => conversation::reply(context).unwrap_or_else(|| conversation::topic(context)),
        MailKind::Forward => forward::inline(context).unwrap_or_else(|| conversation::topic(context)),
        MailKind::ForwardAttached => forward::attached(context).unwrap_or_else(|| conversation::topic(context)),
        MailKind::Newsletter => newsletter::write(context),
        MailKind::Order | MailKind::Shipping | MailKind::Invoice | MailKind::Receipt => {
            shop_notice::write(context, kind)
        }
        MailKind::PasswordReset => alert::password_reset(context),
        MailKind::Alert => alert::machine(context),
        MailKind::Bounce => bounce::write(context),
        MailKind::Invitation => invitation::write(context),
        MailKind::Away => auto_reply::write(context),
        MailKind::ListPost => list_post::write(context),
    }
}
