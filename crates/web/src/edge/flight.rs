//! How much may go on at once, and how much of that may be one tenant's. Whoever finds no seat is told at once: waiting
//! in line would only make everybody slow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::TenantId;

#[derive(Debug)]
pub(crate) struct Flights {
    most: usize,
    /// Of one tenant.
    share: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only those that have some.
    tenants: HashMap<TenantId, usize>,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    flights: Arc<Flights>,
    tenant: Option<TenantId>,
}

impl Flights {
    /// Of `parts` parts, a tenant may have one.
    pub fn new(most: usize, parts: usize) -> Arc<Self> {
        Arc::new(Self { most, share: most.div_ceil(parts), taken: Mutex::default() })
    }

    /// `None`: all are taken.
    pub fn enter(self: &Arc<Self>) -> Option<Seat> {
        let mut taken = self.taken();
        if taken.all >= self.most {
            return None;
        }
        taken.all += 1;
        Some(Seat { flights: self.clone(), tenant: None })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Now that it is known whose it is. `false`: that tenant has its share already.
    pub fn belongs_to(&mut self, tenant: TenantId) -> bool {
        if self.tenant == Some(tenant) {
            return true;
        }
        self.leave_tenant();
        let mut taken = self.flights.taken();
        let of_tenant = taken.tenants.entry(tenant).or_default();
        if *of_tenant >= self.flights.share {
            return false;
        }
        *of_tenant += 1;
        self.tenant = Some(tenant);
        true
    }

    pub fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    fn leave_tenant(&mut self) {
        let Some(tenant) = self.tenant.take() else { return };
        let mut taken = self.flights.taken();
        if let Some(of_tenant) = taken.tenants.get_mut(&tenant) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                taken.tenants.remove(&tenant);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave_tenant();
        self.flights.taken().all -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    #[test]
    fn a_tenant_has_its_share_and_leaves_the_rest() {
        let (acme, beta) = (TenantId::new(&SystemClock), TenantId::new(&SystemClock));
        let flights = Flights::new(8, 4);
        let seat = |tenant| {
            let mut seat = flights.enter().unwrap();
            seat.belongs_to(tenant).then_some(seat)
        };

        let held = [seat(acme), seat(acme)];
        assert!(held.iter().all(Option::is_some));
        assert!(seat(acme).is_none());
        let other = seat(beta);
        assert!(other.is_some());
        drop(held);
        let mut again = seat(acme).unwrap();
        assert!(again.belongs_to(acme) && again.tenant() == Some(acme));
        drop((again, other));

        let taken = flights.taken();
        assert_eq!((taken.all, taken.tenants.len()), (0, 0));
    }

    #[test]
    fn there_are_only_so_many() {
        let flights = Flights::new(2, 1);
        let held = [flights.enter(), flights.enter()];
        assert!(held.iter().all(Option::is_some) && flights.enter().is_none());
        drop(held);
        assert!(flights.enter().is_some());
    }
}
