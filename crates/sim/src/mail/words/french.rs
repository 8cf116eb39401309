use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "la facture, le contrat, le devis, le rapport, le calendrier, la commande, la livraison, le brouillon, \
             le compte rendu, le dossier, l'accord, l'acompte, l'adresse, l'affiche, l'agenda, l'analyse, l'annexe, \
             l'appel d'offres, l'archive, l'assurance, l'attestation, l'audit, l'autorisation, l'avenant, l'avis, \
             le badge, le bail, le bilan, le billet de train, le bon de commande, le bordereau, le budget, le bureau, \
             le cahier des charges, la campagne, le catalogue, la caution, le certificat, la clause, la clé, le colis, \
             la comparaison, la convention, la copie, le courrier, la date limite, la déclaration, la démonstration, \
             le dépôt, la dépense, le dessin, la documentation, l'échantillon, l'échéance, l'emballage, l'entretien, \
             l'enquête, l'entrepôt, l'équipement, l'estimation, l'étude, l'expédition, la fiche technique, \
             la formation, le formulaire, la garantie, la grille tarifaire, l'horaire, l'incident, l'inventaire, \
             l'itinéraire, la lettre, la licence, la liste des clients, le logiciel, la maintenance, le manuel, \
             la maquette, le matériel, la mesure, la note de frais, l'offre, l'outil, le paiement, le panneau, \
             la pièce de rechange, le planning, la présentation, le prêt, la procédure, le projet de loi, le prototype, \
             la quittance, le reçu, la réclamation, la relance, le remboursement, le rendez-vous, la réparation, \
             la réservation, la réunion, la salle, le serveur, la signature, le solde, le sondage, le stage, le stock, \
             la stratégie, le tableau, le tarif, la traduction, le transport, le virement, la visite, le voyage",
        ),
        verbs: list(
            "vérifier, envoyer, signer, valider, confirmer, mettre à jour, terminer, préparer, discuter, transférer, \
             imprimer, comparer, corriger, adapter, archiver, organiser, évaluer, réserver, calculer, annuler, changer, \
             clarifier, récupérer, compléter, copier, livrer, décrire, documenter, estimer, prolonger, améliorer, \
             installer, mesurer, déplacer, négocier, commander, payer, planifier, publier, refuser, renouveler, \
             remplacer, réécrire, numériser, partager, raccourcir, tester, traduire, télécharger, retirer",
        ),
        qualities: list(
            "prêt, parfait, complet, en bonne voie, approuvé, en retard, ouvert, urgent, flou, définitif, signé, correct, \
             cher, difficile, simple, disponible, bloqué, confirmé, excellent, fragile, incomplet, périmé, prometteur, \
             fiable, résolu, risqué, lent, stable, étonnant, inhabituel, valable",
        ),
        days: list(
            "lundi, mardi, mercredi, jeudi, vendredi, samedi, demain, la semaine prochaine, mardi prochain, jeudi prochain, lundi matin, vendredi soir",
        ),
        places: list(
            "au bureau, à l'entrepôt, chez le client, à l'atelier, dans le dossier partagé, en réunion, à la banque, \
             au port, au laboratoire, à l'accueil, au deuxième étage, aux archives, à la cantine, sur le chantier, \
             à la douane, sur le quai, à la gare, à l'aéroport, à l'agence de Lyon",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &["Bonjour à tous,", "Bonjour,", "Bonjour {person},", "Chère équipe,", "Salut {person},"],
        closings: &["Cordialement", "Bien à vous", "Merci d'avance", "À bientôt", "Bien cordialement"],
        given_names: names(
            "Amélie=amelie, Baptiste, Céleste=celeste, Désiré=desire, Éloïse=eloise, Fabrice, Ghislaine, Hélène=helene, \
             Isidore, Joséphine=josephine, Léopold=leopold, Mathilde, Noémie=noemie, Octave, Placide, Raphaël=raphael, \
             Solène=solene, Théo=theo, Ursule, Zoé=zoe",
        ),
        family_names: names(
            "Aubépine=aubepine, Beauchêne=beauchene, Clairmatin, Desbruyères=desbruyeres, Fontvieille, Grandpré=grandpre, \
             Hautbois, Lavandier, Maisonclaire, Noisetier, Pierrefeu, Quatresous, Rivebelle, Sainfoin, Troènes=troenes, \
             Valfleury",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "Pourriez-vous {verb} {thing} avant {day} ?",
    "Il nous reste à {verb} {thing} pour {project}.",
    "J'ai déposé {thing} et {thing} {place}.",
    "À mon avis, tout est {quality}.",
    "Merci de {verb} {thing} et de me tenir au courant.",
    "{person} demande si nous pouvons {verb} {thing} avant {day}.",
    "Le total s'élève à {amount}, soit {count} % de plus que prévu.",
    "D'après {person}, c'est {quality}.",
    "Dès que j'aurai {thing}, je pourrai {verb} {thing}.",
    "La liste compte {count} points ouverts, surtout pour {thing}.",
    "La référence {code} correspond au projet {project}.",
    "Personne n'a trouvé {thing} {place}, j'ai donc dû {verb} {thing}.",
    "Si nous arrivons à {verb} {thing} cette semaine, {thing} suivra.",
    "Pour {project}, nous avons convenu de {amount} hors taxes.",
    "Merci pour {thing}, c'était très utile.",
    "L'incident de {day} est clos : il a fallu {verb} {thing} {place}.",
    "Deux candidates viendront {place} ; il faudra préparer {thing}.",
    "Mon train arrive vers {count}h30, nous pourrons {verb} {thing} ensuite.",
    "La banque a confirmé le paiement de {amount} pour {code}.",
    "Mieux vaut ne pas {verb} {thing} avant {day}.",
    "Je préfère {verb} {thing} plutôt que {thing}.",
    "Il y a eu {count} questions sur {project}, surtout {place}.",
    "{person} et moi allons {verb} {thing} avant {day}.",
    "Comme convenu, voici {thing} ; {thing} arrivera avant {day}.",
    "Le client a accepté {thing} sans modification.",
    "Notre fournisseur ne peut pas {verb} {thing}, il nous reste {count} pièces.",
    "Qui peut {verb} {thing} pendant les congés ?",
    "Il a fallu {count} heures pour {verb} {thing}.",
    "Désolé pour cette réponse tardive, {project} m'a occupé toute la journée.",
    "Les {count} cartons sont {place} et tout semble {quality}.",
];

const SUBJECTS: &[&str] = &[
    "{project} : {verb} {thing}",
    "Question sur {thing}",
    "Facture n° {code}",
    "Contrat {project}",
    "Réunion {day}",
    "Incident {code}",
    "Entretien avec {person}",
    "Déplacement {place}",
    "Prochaines étapes pour {project}",
    "{project} : budget de {amount}",
    "Peut-on {verb} {thing} avant {day} ?",
    "Urgent : {verb} {thing}",
    "Déjeuner {day} ?",
    "Modifications demandées ({code})",
];

const PHRASES: Phrases = Phrases {
    reply: "RE: ",
    forward: "TR: ",
    wrote: "Le {date}, {person} a écrit :",
    forwarded: "Message transféré",
    from: "De",
    date: "Date",
    subject: "Objet",
    to: "À",
    total: "Total",
    unsubscribe: "Se désabonner",
    order: "Votre commande {code} est enregistrée",
    shipped: "Votre colis {code} est en route",
    invoice: "Votre facture {code} de {amount}",
    receipt: "Reçu de votre paiement de {amount}",
    reset: "Réinitialisation de votre mot de passe",
    alert: "[ALERTE] {code} : disque utilisé à {percent} %",
    invitation: "Invitation : réunion {project}",
    away: "Absence du bureau : ",
    away_text: "Merci pour votre message. Je suis absent jusqu'à {day} et je vous répondrai à mon retour.",
    newsletter: "{count} idées pour {verb} {thing}",
};
