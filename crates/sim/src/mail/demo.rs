//! Three companies whose people write to each other and to the world: what `mailroom demo` shows.

use std::collections::VecDeque;

use super::compose::Composer;
use super::generator::Message;
use super::letter::Letter;
use super::people::{Contact, PersonId};
use super::profile::{Attachments, Profile};

/// How many people have a mailbox at each of the three companies.
const MAILBOXES: [usize; 3] = [6, 5, 4];

#[derive(Debug, Clone)]
pub struct Tenant {
    pub name: String,
    pub domain: String,
    pub mailboxes: Vec<Mailbox>,
}

#[derive(Debug, Clone)]
pub struct Mailbox {
    pub owner: Contact,
}

/// A message and the mailbox it lands in.
#[derive(Debug)]
pub struct Delivery {
    /// Index into [`Demo::tenants`].
    pub tenant: usize,
    /// Index into that tenant's mailboxes.
    pub mailbox: usize,
    pub message: Message,
}

/// Deliveries in order of time, made one letter at a time.
#[derive(Debug)]
pub struct Demo {
    tenants: Vec<Tenant>,
    composer: Composer,
    waiting: VecDeque<Delivery>,
    left: usize,
}

/// Exactly `emails` deliveries over all mailboxes. Colleagues who get the same message get the same bytes; the sender
/// and other companies hold copies of their own, as in life.
pub fn demo(seed: u64, emails: usize) -> Demo {
    let owner = |(company, count): (usize, &usize)| {
        let count = *count;
        (0..count).map(move |person| PersonId { company, person })
    };
    let profile = Profile {
        owners: MAILBOXES.iter().enumerate().flat_map(owner).collect(),
        attachments: Attachments {
            per_twenty: 4,
            deciles: [1_000, 2_000, 3_500, 5_000, 8_000, 12_000, 18_000, 28_000, 45_000, 70_000, 180_000],
        },
        ..Profile::ordinary(seed, emails)
    };
    let tenant = |(company, count): (usize, &usize)| {
        let company = &profile.companies[company];
        let mailbox = |person: &super::people::Person| Mailbox { owner: person.contact.clone() };
        let mailboxes = company.people.iter().take(*count).map(mailbox).collect();
        Tenant { name: company.name.clone(), domain: company.domain.clone(), mailboxes }
    };
    let tenants = MAILBOXES.iter().enumerate().map(tenant).collect();
    Demo { tenants, composer: Composer::new(seed, profile), waiting: VecDeque::new(), left: emails }
}

impl Demo {
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    fn deliver(&mut self, letter: &Letter) {
        for (tenant, Tenant { mailboxes, .. }) in self.tenants.iter().enumerate() {
            for (mailbox, Mailbox { owner }) in mailboxes.iter().enumerate() {
                let is_party = letter.from.address == owner.address
                    || letter.recipients().any(|recipient| recipient.address == owner.address);
                if is_party {
                    let message = Message::filed(letter, self.composer.seed, owner);
                    self.waiting.push_back(Delivery { tenant, mailbox, message });
                }
            }
        }
    }
}

impl Iterator for Demo {
    type Item = Delivery;

    fn next(&mut self) -> Option<Delivery> {
        if self.left == 0 {
            return None;
        }
        while self.waiting.is_empty() {
            let letter = self.composer.next()?;
            self.deliver(&letter);
        }
        self.left -= 1;
        self.waiting.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
