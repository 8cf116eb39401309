use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "fakturę, umowę, raport, budżet, harmonogram, ofertę, zamówienie, dostawę, projekt, protokół, aneks, ankietę, \
             audyt, bilans, bilet, cennik, certyfikat, dokumentację, działkę, dziennik, ekspertyzę, etykietę, formularz, \
             gwarancję, grafik, instrukcję, inwentaryzację, kalkulację, kampanię, katalog, klucz, kontrolę, kopię, \
             korektę, kosztorys, licencję, list, listę klientów, listę płac, magazyn, maszynę, materiał, migrację, \
             mieszkanie, naprawę, narzędzie, notatkę, odbiór, odpowiedź, opakowanie, opinię, opis, płatność, paczkę, \
             plan, podpis, podróż, podsumowanie, polisę, pomiar, porozumienie, pozwolenie, próbkę, prezentację, \
             propozycję, przegląd, przelew, przesyłkę, przypomnienie, rachunek, reklamację, rezerwację, rozliczenie, \
             rozmowę, rysunek, salę, serwer, spotkanie, sprawozdanie, szkic, szkolenie, tabelę, termin, tłumaczenie, \
             transport, ubezpieczenie, usługę, uwagę, wersję, wniosek, wycenę, wypowiedzenie, wzór, zaliczkę, załącznik, \
             zapytanie, zaświadczenie, zestawienie, zgłoszenie, zgodę, zlecenie, zwrot",
        ),
        verbs: list(
            "sprawdzić, wysłać, podpisać, zatwierdzić, potwierdzić, zaktualizować, zakończyć, przygotować, omówić, \
             przekazać, wydrukować, porównać, poprawić, dostosować, ocenić, zarezerwować, obliczyć, odwołać, zmienić, \
             wyjaśnić, odebrać, uzupełnić, skopiować, dostarczyć, opisać, przedłużyć, ulepszyć, zainstalować, zmierzyć, \
             przesunąć, wynegocjować, zamówić, zapłacić, zaplanować, opublikować, odrzucić, odnowić, wymienić, \
             zeskanować, udostępnić, skrócić, przetestować, przetłumaczyć, wycofać",
        ),
        qualities: list(
            "gotowe, w porządku, pełne, zgodne z planem, zatwierdzone, spóźnione, otwarte, pilne, niejasne, ostateczne, \
             podpisane, poprawne, drogie, trudne, proste, dostępne, zablokowane, potwierdzone, doskonałe, kruche, \
             niekompletne, przestarzałe, obiecujące, niezawodne, rozwiązane, ryzykowne, stabilne, ważne",
        ),
        days: list("poniedziałku, wtorku, środy, czwartku, piątku, soboty, lipca, września, przyszłego tygodnia, roku"),
        places: list(
            "w biurze, w magazynie, u klienta, w warsztacie, we wspólnym folderze, na spotkaniu, w banku, w porcie, \
             w laboratorium, w recepcji, na drugim piętrze, w archiwum, w stołówce, na budowie, w urzędzie celnym, \
             na rampie, na dworcu, na lotnisku, w oddziale w Łodzi",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &["Dzień dobry,", "Cześć,", "Witam wszystkich,", "Szanowni Państwo,", "Drogi Zespole,"],
        closings: &["Pozdrawiam", "Z poważaniem", "Z góry dziękuję", "Serdecznie pozdrawiam", "Do usłyszenia"],
        given_names: names(
            "Agnieszka, Bogumił=bogumil, Celina, Dobrosława=dobroslawa, Eustachy, Grażyna=grazyna, Henryk, Iwona, Józef=jozef, \
             Kazimierz, Łucja=lucja, Mieszko, Olgierd, Przemysław=przemyslaw, Seweryn, Świętosława=swietoslawa, Wacław=waclaw, \
             Żaneta=zaneta",
        ),
        family_names: names(
            "Brzózkowiak=brzozkowiak, Czapliniec, Dębogórski=debogorski, Gęślarz=geslarz, Jaśminek=jasminek, Kłosowiak=klosowiak, \
             Łąkowiec=lakowiec, Mgielnik, Ośnieżny=osniezny, Pieprzówka=pieprzowka, Rzekowicz, Słonecznik=slonecznik, \
             Trzcinowski, Wierzbołek=wierzbolek, Źródlak=zrodlak, Żytomirek=zytomirek",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "Czy możesz {verb} {thing} do {day}?",
    "Musimy jeszcze {verb} {thing} dla {project}.",
    "Położyłem {thing} oraz {thing} {place}.",
    "Z mojej strony wszystko jest {quality}.",
    "Proszę {verb} {thing} i dać mi znać.",
    "{person} pyta, czy zdążymy {verb} {thing} do {day}.",
    "Razem wychodzi {amount}, czyli o {count} procent więcej niż ostatnio.",
    "{person} twierdzi, że wszystko jest {quality}.",
    "Gdy tylko dostanę {thing}, mogę {verb} {thing}.",
    "Na liście jest {count} otwartych punktów, trzeba {verb} {thing}.",
    "Numer {code} dotyczy {project}.",
    "Nikt nie znalazł tego {place}, więc musiałam {verb} {thing} ponownie.",
    "Jeśli uda się {verb} {thing} w tym tygodniu, potem zrobimy {thing}.",
    "W sprawie {project} ustaliliśmy {amount} netto.",
    "Dziękuję za {thing}, bardzo nam to pomogło.",
    "Awaria została usunięta, trzeba było {verb} {thing} {place}.",
    "Dwie kandydatki przyjadą przed końcem {day}; warto przygotować {thing}.",
    "Mój pociąg przyjeżdża około {count}:30, wtedy możemy {verb} {thing}.",
    "Bank potwierdził płatność {amount} za {code}.",
    "Lepiej nie {verb} niczego do {day}.",
    "Wolę {verb} {thing} niż {thing}.",
    "Było {count} pytań o {project}, głównie {place}.",
    "{person} i ja chcemy {verb} {thing} dziś po południu.",
    "Zgodnie z ustaleniami przesyłam {thing}, a {thing} wyślę do {day}.",
    "Klient przyjął {thing} bez zmian.",
    "Dostawca nie może {verb} {thing}, zostało nam {count} sztuk.",
    "Kto może {verb} {thing} podczas urlopu?",
    "Zajęło nam to {count} godzin, żeby {verb} {thing}.",
    "Przepraszam za późną odpowiedź, {project} zajął mi cały dzień.",
    "Wszystkie {count} skrzyń stoi już {place}.",
];

const SUBJECTS: &[&str] = &[
    "{project}: proszę {verb} {thing}",
    "Pytanie o {thing}",
    "Faktura nr {code}",
    "Umowa {project}",
    "Spotkanie przed końcem {day}",
    "Zgłoszenie {code}",
    "Rozmowa kwalifikacyjna: {person}",
    "Wyjazd służbowy do {day}",
    "Następne kroki: {project}",
    "{project}: budżet {amount}",
    "Czy zdążymy {verb} {thing} do {day}?",
    "Pilne: {verb} {thing}",
    "Wspólny obiad?",
];

const PHRASES: Phrases = Phrases {
    reply: "Odp: ",
    forward: "PD: ",
    wrote: "{date} {person} napisał(a):",
    forwarded: "Wiadomość przekazana",
    from: "Od",
    date: "Data",
    subject: "Temat",
    to: "Do",
    total: "Razem",
    unsubscribe: "Wypisz się",
    order: "Otrzymaliśmy zamówienie {code}",
    shipped: "Paczka {code} jest w drodze",
    invoice: "Faktura {code} na kwotę {amount}",
    receipt: "Potwierdzenie płatności {amount}",
    reset: "Zmiana hasła",
    alert: "[ALARM] {code}: dysk zajęty w {percent} %",
    invitation: "Zaproszenie: spotkanie {project}",
    away: "Poza biurem: ",
    away_text: "Dziękuję za wiadomość. Nie ma mnie w biurze do {day}, odpowiem po powrocie.",
    newsletter: "{count} sposobów, aby {verb} {thing}",
};
