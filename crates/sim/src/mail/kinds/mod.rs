//! The kinds of letter that fill a mailbox, one file for each family.

mod alert;
mod away;
mod body;
mod bounce;
mod conversation;
mod forward;
mod invitation;
mod list_post;
mod newsletter;
mod notice;

use super::desk::Desk;
use super::letter::Draft;
use super::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Topic,
    Reply,
    Forward,
    /// The forwarded message goes along as a message of its own.
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

impl Kind {
    /// How a working person's mailbox is made up.
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

    /// A kind that can have a file with it.
    pub fn carrying(rng: &mut Rng) -> Self {
        match rng.below(20) {
            0..9 => Self::Topic,
            9..15 => Self::Reply,
            15..17 => Self::Forward,
            _ => Self::Invoice,
        }
    }
}

pub fn write(kind: Kind, mut desk: Desk<'_>) -> Draft {
    let desk = &mut desk;
    match kind {
        Kind::Topic => conversation::topic(desk),
        // There may be nothing to answer or forward yet; then someone has to begin.
        Kind::Reply => conversation::reply(desk).unwrap_or_else(|| conversation::topic(desk)),
        Kind::Forward => forward::inline(desk).unwrap_or_else(|| conversation::topic(desk)),
        Kind::ForwardAttached => forward::attached(desk).unwrap_or_else(|| conversation::topic(desk)),
        Kind::Newsletter => newsletter::write(desk),
        Kind::Order | Kind::Shipping | Kind::Invoice | Kind::Receipt => notice::write(desk, kind),
        Kind::PasswordReset => alert::password_reset(desk),
        Kind::Alert => alert::machine(desk),
        Kind::Bounce => bounce::write(desk),
        Kind::Invitation => invitation::write(desk),
        Kind::Away => away::write(desk),
        Kind::ListPost => list_post::write(desk),
    }
}
