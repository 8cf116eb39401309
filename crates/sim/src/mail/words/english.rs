use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "invoice, contract, report, budget, schedule, proposal, offer, draft, agenda, delivery, order, shipment, \
             quote, forecast, specification, drawing, prototype, sample, agreement, amendment, appendix, audit, \
             backlog, balance, booking, brochure, calculation, campaign, catalogue, certificate, checklist, claim, \
             clause, comparison, complaint, concept, contract renewal, cost estimate, credit note, customer list, \
             dashboard, data sheet, deadline, delivery note, demonstration, deposit, design, discount, dispatch list, \
             documentation, estimate, evaluation, expense report, feedback, fixture, floor plan, framework agreement, \
             freight bill, guarantee, handbook, handover, hotel booking, incident report, inspection, insurance policy, \
             interview, inventory, itinerary, job description, label, lease, ledger, letter, licence, licence key, \
             logbook, maintenance window, manual, material list, measurement, meeting room, memo, migration plan, \
             milestone, minutes, notice, onboarding plan, outage, outline, packaging, parcel, patch, payment, \
             payment reminder, payroll, permit, photograph, pilot, pipeline, platform, policy, poster, presentation, \
             price list, printer, procedure, programme, project plan, protocol, purchase order, quality check, \
             questionnaire, quotation, receipt, recommendation, reference, refund, release, reminder, remittance, \
             rental car, replacement, request, requirement, reservation, review, risk assessment, roadmap, rota, \
             safety sheet, scan, scope, screenshot, server, settlement, shift plan, shortlist, signature, sketch, \
             slide deck, software update, spare part, spreadsheet, statement, stock list, storage unit, strategy, \
             subscription, summary, supplier list, survey, target, tariff, template, tender, test plan, ticket, \
             timeline, timesheet, toolkit, training course, transcript, translation, transport, travel request, \
             turnover report, valve, venue, visa, voucher, warehouse key, warranty, workshop, work permit, worksheet",
        ),
        verbs: list(
            "check, review, send, sign, approve, confirm, update, finish, prepare, discuss, forward, print, compare, \
             correct, adjust, archive, arrange, assess, book, calculate, cancel, change, clarify, close, collect, \
             complete, copy, deliver, describe, document, estimate, examine, extend, extract, finalise, fix, improve, \
             inspect, install, label, measure, move, negotiate, order, pay, plan, postpone, present, publish, recheck, \
             reconcile, record, refuse, reject, release, renew, replace, rewrite, scan, settle, share, shorten, simplify, \
             split, test, track, translate, upload, validate, verify, withdraw",
        ),
        qualities: list(
            "ready, fine, complete, on track, approved, late, open, urgent, unclear, final, signed, correct, expensive, \
             difficult, simple, available, blocked, confirmed, delayed, excellent, expected, fragile, incomplete, \
             interesting, outdated, pending, perfect, promising, quiet, reliable, resolved, risky, slow, stable, \
             surprising, unusual, valid, visible, weatherproof, wonderful",
        ),
        days: list(
            "Monday, Tuesday, Wednesday, Thursday, Friday, Monday morning, Tuesday afternoon, Thursday evening, Saturday, the 3rd, the 15th, the 28th, the last Friday of the month, 1 March, 30 June",
        ),
        places: list(
            "the office, the warehouse, the workshop, the bank, the harbour, the laboratory, the archive, the canteen, \
             the test site, the customs office, the loading bay, the showroom, the station, the airport, \
             the branch office, the print room, the training centre, the cold store, the boiler house, the north gate",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &["Hi all,", "Hello,", "Dear {person},", "Hi {person},", "Good morning,", "Hello {person},", "Hi,"],
        closings: &["Best regards", "Kind regards", "Thanks", "Cheers", "Many thanks", "All the best", "Best"],
        given_names: names(
            "Ada, Bram, Clara, Dorian, Edith, Felix, Greta, Hugo, Imogen, Jasper, Keira, Lionel, Maeve, Nolan, Odette, \
             Piers, Quentin, Rosalind, Silas, Tabitha, Una, Victor, Wren, Yorick",
        ),
        family_names: names(
            "Ashgrove, Barleycombe, Cobblewick, Dunmarrow, Elderfield, Fenwhistle, Gorsebridge, Hollowell, \
             Inglethorpe, Kestrelby, Larkspire, Marchbanks, Netherwood, Oakenshaw, Pellamore, Quillfeather, Ravensworth, \
             Saltmarsh, Thistledown, Underhay, Vantongeren, Wickerby, O'Brackenridge=obrackenridge, Yarborne",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "Could you {verb} the {thing} before {day}?",
    "We still need to {verb} the {thing} for {project}.",
    "I have put the {thing} and the {thing} in {place}.",
    "The {thing} for {project} is {quality}.",
    "Please {verb} the attached {thing} and let me know what you think.",
    "{person} asked whether we can {verb} the {thing} by {day}.",
    "From {day} on, every {thing} has to go through {place} first.",
    "The total comes to {amount}, which is {count} percent more than the last {thing}.",
    "According to {person}, the {thing} is {quality} and the {thing} is {quality}.",
    "I will {verb} it as soon as the {thing} arrives at {place}.",
    "We counted {count} open points in the {thing}, most of them about the {thing}.",
    "Reference {code} belongs to the {thing} that {person} wanted to {verb}.",
    "Nobody at {place} could find the {thing}, so I had to {verb} it again.",
    "If we {verb} the {thing} this week, the {thing} can follow after {day}.",
    "For {project} we agreed on {amount} plus one {thing} at no extra cost.",
    "That is {quality} as far as I can see.",
    "Thanks for the {thing}, it was very helpful.",
    "The incident from {day} is closed: one {thing} had to be replaced in {place}.",
    "Two candidates for {project} will visit {place} on {day}; please prepare the {thing}.",
    "My train arrives at {place} around {count}:30, we can {verb} the {thing} then.",
    "The bank has confirmed the payment of {amount} for order {code}.",
    "Let us not {verb} the {thing} until legal has seen the {thing}.",
    "I would rather {verb} the {thing} than the {thing}.",
    "There were {count} questions about the {thing} during the call.",
    "The {thing} is {quality}, but the {thing} worries me a little.",
    "{person} and I will {verb} the numbers for {project} on {day}.",
    "Do we have the {thing} for {place}?",
    "As discussed, here is the {thing}; the {thing} follows on {day}.",
    "The customer accepted the {thing} without changes.",
    "Our supplier cannot {verb} the {thing} before {day}, which leaves us with {count} pieces.",
    "A short call might be easier; I am free on {day} after {count}.",
    "Who will {verb} the {thing} while {person} is away?",
    "The audit of {project} found nothing, apart from a missing {thing}.",
    "Please keep the {thing} confidential until {day}.",
    "It took {count} hours to {verb} everything, including the {thing}.",
    "The new {thing} replaces {code} and is valid from {day}.",
    "Sorry for the late answer, the {thing} kept me busy all day.",
    "I am not sure the {thing} covers {project}; could {person} {verb} it?",
    "All {count} boxes are at {place} now and the {thing} looks {quality}.",
    "Let me know if {day} works for you, otherwise we {verb} it without the {thing}.",
];

const SUBJECTS: &[&str] = &[
    "{project}: {thing} for {day}",
    "{thing} {code}",
    "Question about the {thing}",
    "{project} - {thing} and {thing}",
    "Please {verb} the {thing}",
    "Meeting on {day}",
    "Invoice {code}",
    "Contract for {project}",
    "Incident {code}: {thing} {quality}",
    "Interview with {person}",
    "Travel to {place} on {day}",
    "Updated {thing} ({project})",
    "Can we {verb} the {thing} before {day}?",
    "Next steps for {project}",
    "{project}: budget of {amount}",
    "Minutes: {thing}, {thing}, open points",
    "Urgent: {thing} is {quality}",
    "Lunch on {day}?",
];

const PHRASES: Phrases = Phrases {
    reply: "Re: ",
    forward: "Fwd: ",
    wrote: "On {date}, {person} wrote:",
    forwarded: "Forwarded message",
    from: "From",
    date: "Date",
    subject: "Subject",
    to: "To",
    total: "Total",
    unsubscribe: "Unsubscribe",
    order: "We have received your order {code}",
    shipped: "Your parcel {code} is on its way",
    invoice: "Your invoice {code} over {amount}",
    receipt: "Receipt for your payment of {amount}",
    reset: "Reset your password",
    alert: "[ALERT] {code}: disk usage at {percent} %",
    invitation: "Invitation: {project} {thing}",
    away: "Out of office: ",
    away_text: "Thank you for your message. I am out of the office until {day} and will answer when I am back.",
    newsletter: "{count} ideas for {project} and your {thing}",
};
