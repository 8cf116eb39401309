use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "die Rechnung, den Vertrag, das Angebot, den Bericht, den Zeitplan, die Bestellung, die Lieferung, \
             den Entwurf, das Protokoll, die Unterlagen, die Abrechnung, die Abnahme, den Anhang, die Anfrage, \
             die Anleitung, den Antrag, den Arbeitsplan, den Ausweis, die Auswertung, das Budget, die Buchung, \
             die Baustelle, die Bescheinigung, die Besprechung, die Bewerbung, die Dienstreise, das Datenblatt, \
             die Druckerei, die Einladung, die Einkaufsliste, das Ergebnis, das Ersatzteil, die Erstattung, \
             den Fahrplan, das Feedback, das Formular, die Fracht, die Freigabe, die Frist, die Garantie, \
             die Genehmigung, das Gerät, das Gutachten, die Gutschrift, das Handbuch, die Heizung, den Hinweis, \
             das Hotel, die Inventur, den Jahresabschluss, die Kalkulation, die Kampagne, die Kündigung, \
             den Kostenvoranschlag, das Konzept, die Kundenliste, das Lager, das Lastenheft, den Lieferschein, \
             die Lizenz, die Mahnung, die Maschine, den Messwert, das Muster, die Nachbesserung, den Nachweis, \
             die Niederlassung, die Notiz, die Planung, die Präsentation, die Preisliste, die Prüfung, \
             den Prototyp, die Quittung, die Rückmeldung, die Reklamation, die Reparatur, die Risikoanalyse, \
             die Schulung, den Schichtplan, das Schloss, die Schnittstelle, den Server, die Sicherheitsprüfung, \
             die Software, die Stellenanzeige, die Störung, die Straßensperrung, die Stückliste, den Termin, \
             die Übergabe, die Überweisung, die Übersetzung, den Umzug, die Umfrage, die Unterschrift, den Urlaub, \
             die Vereinbarung, die Verpackung, die Versicherung, die Vollmacht, die Vorlage, die Wartung, \
             die Werkzeugkiste, den Zahlungseingang, die Zeichnung, das Zertifikat, den Zollbescheid, den Zuschuss",
        ),
        verbs: list(
            "prüfen, schicken, freigeben, besprechen, bestätigen, aktualisieren, abschließen, vorbereiten, \
             weiterleiten, ausdrucken, vergleichen, korrigieren, anpassen, ablegen, bewerten, buchen, berechnen, \
             absagen, ändern, klären, abholen, ergänzen, kopieren, liefern, beschreiben, dokumentieren, schätzen, \
             verlängern, verbessern, einbauen, messen, verschieben, verhandeln, bestellen, bezahlen, planen, \
             veröffentlichen, erfassen, ablehnen, erneuern, ersetzen, überarbeiten, einscannen, teilen, kürzen, \
             testen, übersetzen, hochladen, zurückziehen, unterschreiben",
        ),
        qualities: list(
            "fertig, in Ordnung, vollständig, im Plan, genehmigt, verspätet, offen, dringend, unklar, endgültig, \
             unterschrieben, richtig, teuer, schwierig, einfach, verfügbar, gesperrt, bestätigt, ausgezeichnet, \
             zerbrechlich, lückenhaft, veraltet, vielversprechend, zuverlässig, gelöst, riskant, langsam, stabil, \
             überraschend, ungewöhnlich, gültig, größer als gedacht, schöner als gedacht",
        ),
        days: list(
            "Montag, Dienstag, Mittwoch, Donnerstag, Freitag, Monatsende, Quartalsende, Jahresende, 1. März, 15. Juni, 30. September",
        ),
        places: list(
            "im Büro, im Lager, beim Kunden, in der Werkstatt, im gemeinsamen Ordner, in der Sitzung, bei der Bank, \
             am Hafen, im Labor, am Empfang, im zweiten Stock, im Archiv, in der Kantine, auf der Baustelle, beim Zoll, \
             an der Laderampe, am Bahnhof, am Flughafen, in der Zweigstelle, in München, in Köln",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &["Hallo zusammen,", "Guten Tag,", "Hallo {person},", "Liebe Kolleginnen und Kollegen,", "Moin,"],
        closings: &["Viele Grüße", "Mit freundlichen Grüßen", "Beste Grüße", "Danke und Gruß", "Schöne Grüße"],
        given_names: names(
            "Anneliese, Björn=bjoern, Cordula, Detlef, Elke, Falk, Gesine, Hanno, Ilse, Jörg=joerg, Käthe=kaethe, Lorenz, \
             Mareike, Norbert, Ottilie, Ruprecht, Sönke=soenke, Traudel, Ulrike, Volker",
        ),
        family_names: names(
            "Apfelbäumer=apfelbaeumer, Birkenstöckl=birkenstoeckl, Distelkamp, Eichhölzer=eichhoelzer, Fuchsgruber, \
             Grünewälder=gruenewaelder, Haselhuber, Immenroth, Krähenbühler=kraehenbuehler, Lindenmoser, Moosgräber=moosgraeber, \
             Nebelthau, Quellmalz, Rübsamer=ruebsamer, Schönwetter=schoenwetter, Tannhuber, Veilchenfeldt, Weißdorner=weissdorner",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "Könnten Sie {thing} bis {day} {verb}?",
    "Wir müssen {thing} für {project} noch {verb}.",
    "Ich habe {thing} und {thing} {place} abgelegt.",
    "Aus meiner Sicht ist alles {quality}.",
    "Bitte {thing} {verb} und mir kurz Bescheid geben.",
    "{person} fragt, ob wir {thing} bis {day} {verb} können.",
    "Ab {day} läuft das nur noch {place}.",
    "Insgesamt sind es {amount}, das sind {count} Prozent mehr als zuletzt.",
    "Laut {person} ist es {quality}.",
    "Sobald ich {thing} habe, kann ich {thing} {verb}.",
    "In der Liste stehen {count} offene Punkte, die meisten betreffen {thing}.",
    "Das Aktenzeichen {code} gehört zu {project}.",
    "Niemand konnte {thing} {place} finden, deshalb musste ich {thing} neu {verb}.",
    "Wenn wir diese Woche {thing} {verb}, können wir {thing} ab {day} angehen.",
    "Für {project} haben wir {amount} vereinbart, zuzüglich Mehrwertsteuer.",
    "Danke für {thing}, das hat sehr geholfen.",
    "Die Störung vom {day} ist behoben, wir mussten {thing} {place} austauschen.",
    "Zwei Bewerberinnen kommen am {day} vorbei; bitte {thing} vorbereiten.",
    "Mein Zug kommt gegen {count}:30 Uhr an, dann können wir {thing} {verb}.",
    "Die Bank hat die Zahlung über {amount} zu {code} bestätigt.",
    "Vor {day} sollten wir {thing} nicht {verb}.",
    "Ich würde lieber {thing} {verb} als {thing}.",
    "Es gab {count} Fragen zu {project}, vor allem {place}.",
    "{person} und ich werden {thing} am {day} {verb}.",
    "Wie besprochen schicke ich {thing}, {thing} folgt am {day}.",
    "Der Kunde hat {thing} ohne Änderungen angenommen.",
    "Unser Lieferant kann {thing} nicht vor {day} {verb}, es bleiben {count} Stück.",
    "Wer kann {thing} {verb}, solange {person} im Urlaub ist?",
    "Bitte {thing} bis {day} vertraulich behandeln.",
    "Es hat {count} Stunden gedauert, {thing} zu {verb}.",
    "Entschuldigung für die späte Antwort, {project} hat mich den ganzen Tag beschäftigt.",
    "Alle {count} Kisten stehen {place}, das sieht {quality} aus.",
];

const SUBJECTS: &[&str] = &[
    "{project}: bitte {thing} {verb}",
    "Rückfrage zu {project}",
    "Rechnung {code}",
    "Vertrag für {project}",
    "Besprechung am {day}",
    "Störung {code}",
    "Bewerbungsgespräch mit {person}",
    "Dienstreise am {day}",
    "Nächste Schritte für {project}",
    "{project}: Budget über {amount}",
    "Können wir {thing} bis {day} {verb}?",
    "Dringend: {thing} {verb}",
    "Mittagessen am {day}?",
    "Änderungen für {project} ({code})",
    "Übergabe {place}",
];

const PHRASES: Phrases = Phrases {
    reply: "AW: ",
    forward: "WG: ",
    wrote: "Am {date} schrieb {person}:",
    forwarded: "Weitergeleitete Nachricht",
    from: "Von",
    date: "Datum",
    subject: "Betreff",
    to: "An",
    total: "Summe",
    unsubscribe: "Newsletter abbestellen",
    order: "Ihre Bestellung {code} ist eingegangen",
    shipped: "Ihr Paket {code} ist unterwegs",
    invoice: "Ihre Rechnung {code} über {amount}",
    receipt: "Zahlungsbestätigung über {amount}",
    reset: "Passwort zurücksetzen",
    alert: "[WARNUNG] {code}: Speicher zu {percent} % belegt",
    invitation: "Einladung: Abstimmung {project}",
    away: "Abwesenheit: ",
    away_text: "Vielen Dank für Ihre Nachricht. Ich bin bis {day} nicht im Büro und melde mich nach meiner Rückkehr.",
    newsletter: "{count} Ideen für {project}: jetzt {thing} {verb}",
};
