use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "la factura, el contrato, el presupuesto, el informe, el calendario, el pedido, la entrega, el borrador, \
             el acta, el expediente, el acuerdo, el adelanto, la agenda, el albarán, el almacén, el análisis, el anexo, \
             el archivo, la auditoría, la autorización, el aviso, el balance, el billete, el boceto, la caja, \
             la campaña, el catálogo, el certificado, la cita, la cláusula, la cobertura, la comparación, la compra, \
             el comprobante, la contraseña, la copia, el correo, la cotización, la cuenta, el cuestionario, el curso, \
             la declaración, la demostración, el depósito, el descuento, el diseño, la dirección, la documentación, \
             la encuesta, el embalaje, el ensayo, la entrevista, el envío, el equipo, la estimación, el estudio, \
             la etiqueta, la fecha límite, la fianza, la firma, la formación, el formulario, la garantía, el gasto, \
             la guía, la herramienta, el horario, la hoja de ruta, la incidencia, la instalación, el inventario, \
             la licencia, la lista de clientes, la llave, el manual, la maqueta, la máquina, el material, la medición, \
             la migración, la muestra, la nómina, la oferta, el pago, el paquete, el permiso, la pieza, el plano, \
             el plazo, la póliza, la presentación, el préstamo, el procedimiento, el prototipo, la prueba, el recibo, \
             la reclamación, el recordatorio, la reforma, el reembolso, la reparación, la reserva, la reunión, \
             la revisión, la sala, el servidor, la solicitud, la tarifa, el taller, la traducción, el transporte, \
             el turno, la vacante, el viaje, la visita",
        ),
        verbs: list(
            "revisar, enviar, firmar, aprobar, confirmar, actualizar, terminar, preparar, comentar, reenviar, imprimir, \
             comparar, corregir, ajustar, archivar, organizar, evaluar, reservar, calcular, cancelar, cambiar, aclarar, \
             recoger, completar, copiar, entregar, describir, documentar, estimar, ampliar, mejorar, instalar, medir, \
             mover, negociar, pedir, pagar, planificar, publicar, rechazar, renovar, sustituir, escanear, compartir, \
             probar, traducir, subir, retirar",
        ),
        qualities: list(
            "listo, bien, completo, en plazo, aprobado, retrasado, abierto, urgente, confuso, firmado, correcto, caro, \
             difícil, sencillo, disponible, bloqueado, confirmado, excelente, frágil, incompleto, anticuado, prometedor, \
             fiable, resuelto, arriesgado, lento, estable, inusual, vigente",
        ),
        days: list(
            "lunes, martes, miércoles, jueves, viernes, sábado, próximo lunes, próximo jueves, fin de mes, verano, 1 de marzo, 15 de junio",
        ),
        places: list(
            "en la oficina, en el almacén, en casa del cliente, en el taller, en la carpeta compartida, en la reunión, \
             en el banco, en el puerto, en el laboratorio, en recepción, en la segunda planta, en el archivo, \
             en la cantina, en la obra, en la aduana, en el muelle, en la estación, en el aeropuerto, en la sucursal",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &[
            "Hola a todos:",
            "Buenos días:",
            "Hola, {person}:",
            "Estimado equipo:",
            "Buenas tardes, {person}:",
        ],
        closings: &["Un saludo", "Saludos cordiales", "Muchas gracias", "Atentamente", "Un abrazo"],
        given_names: names(
            "Abelardo, Begoña=begona, Casimiro, Débora=debora, Eulalia, Fermín=fermin, Graciela, Hernán=hernan, Inés=ines, \
             Jacinta, Leandro, Maite, Néstor=nestor, Olalla, Rufino, Soledad, Tomás=tomas, Úrsula=ursula, Verónica=veronica, \
             Ximena",
        ),
        family_names: names(
            "Altamirón=altamiron, Bravaluz, Campoazul, Dehesaviña=dehesavina, Espinagrande, Fuentenieve, Granmontaña=granmontana, \
             Huertalba, Limonares, Montepeñón=montepenon, Nogalejo, Olivarte, Piedralisa, Robledales, Sotoverde, \
             Trigueños=triguenos",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "¿Podrías {verb} {thing} antes del {day}?",
    "Todavía tenemos que {verb} {thing} para {project}.",
    "He dejado {thing} y {thing} {place}.",
    "Por mi parte todo está {quality}.",
    "Te ruego {verb} {thing} y avisarme cuando puedas.",
    "{person} pregunta si podemos {verb} {thing} antes del {day}.",
    "El total es de {amount}, un {count} % más que la última vez.",
    "Según {person}, está {quality}.",
    "En cuanto tenga {thing}, podré {verb} {thing}.",
    "Quedan {count} puntos abiertos, sobre todo para {verb} {thing}.",
    "La referencia {code} corresponde a {project}.",
    "Nadie encontró {thing} {place}, así que tuve que {verb} {thing}.",
    "Si logramos {verb} {thing} esta semana, después veremos {thing}.",
    "Para {project} acordamos {amount} más impuestos.",
    "Gracias por {thing}, nos ayudó mucho.",
    "La incidencia está cerrada: hubo que {verb} {thing} {place}.",
    "Dos candidatas vendrán el {day}; conviene preparar {thing}.",
    "Mi tren llega sobre las {count}:30 y entonces podemos {verb} {thing}.",
    "El banco confirmó el pago de {amount} por {code}.",
    "Mejor no {verb} {thing} antes del {day}.",
    "Prefiero {verb} {thing} que {thing}.",
    "Hubo {count} preguntas sobre {project}, casi todas {place}.",
    "{person} y yo vamos a {verb} {thing} esta tarde.",
    "Como acordamos, aquí está {thing}; {thing} llegará pronto.",
    "El cliente aceptó {thing} sin cambios.",
    "El proveedor no puede {verb} {thing} y solo quedan {count} unidades.",
    "¿Quién puede {verb} {thing} durante las vacaciones?",
    "Tardamos {count} horas en {verb} {thing}.",
    "Perdón por la demora, {project} me tuvo ocupada todo el día.",
    "Las {count} cajas están {place} y parece que todo va {quality}.",
];

const SUBJECTS: &[&str] = &[
    "{project}: {verb} {thing}",
    "Pregunta sobre {thing}",
    "Factura nº {code}",
    "Contrato de {project}",
    "Reunión del {day}",
    "Incidencia {code}",
    "Entrevista con {person}",
    "Viaje el {day}",
    "Próximos pasos de {project}",
    "{project}: presupuesto de {amount}",
    "¿Podemos {verb} {thing} antes del {day}?",
    "Urgente: {verb} {thing}",
    "¿Comemos el {day}?",
    "Cambios en {thing} ({code})",
];

const PHRASES: Phrases = Phrases {
    reply: "RE: ",
    forward: "RV: ",
    wrote: "El {date}, {person} escribió:",
    forwarded: "Mensaje reenviado",
    from: "De",
    date: "Fecha",
    subject: "Asunto",
    to: "Para",
    total: "Total",
    unsubscribe: "Darse de baja",
    order: "Hemos recibido tu pedido {code}",
    shipped: "Tu paquete {code} está en camino",
    invoice: "Tu factura {code} de {amount}",
    receipt: "Recibo de tu pago de {amount}",
    reset: "Restablece tu contraseña",
    alert: "[ALERTA] {code}: disco al {percent} %",
    invitation: "Invitación: reunión de {project}",
    away: "Fuera de la oficina: ",
    away_text: "Gracias por tu mensaje. Estoy fuera de la oficina hasta el {day} y responderé a mi regreso.",
    newsletter: "{count} ideas para {verb} {thing}",
};
