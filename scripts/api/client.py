"""What a program does with a client that was generated from /openapi.json: client.py URL OPERATOR_KEY."""

import sys

from mailroom_client import AuthenticatedClient
from mailroom_client.api.emails import delete_email, get_email, search_emails
from mailroom_client.api.mailboxes import create_mailbox, list_mailboxes, pause_mailbox
from mailroom_client.api.tenants import create_api_key, create_tenant, list_tenants
from mailroom_client.api.webhooks import create_webhook, list_webhooks
from mailroom_client.models import EventType, MailboxProvider, NewApiKey, NewMailbox, NewTenant, NewWebhook, Problem

url, operator_key = sys.argv[1:]
operator = AuthenticatedClient(base_url=url, token=operator_key)

made = create_tenant.sync(client=operator, body=NewTenant(name="generated"), idempotency_key="a")
again = create_tenant.sync(client=operator, body=NewTenant(name="generated"), idempotency_key="a")
assert made.id == again.id and made.name == "generated", (made, again)
refused = create_tenant.sync(client=operator, body=NewTenant(name="generated"))
assert isinstance(refused, Problem) and refused.status == 409, refused

tenants = {tenant.name: tenant for tenant in list_tenants.sync(client=operator).items}
key = create_api_key.sync(tenants["acme"].id, client=operator, body=NewApiKey(name="client", scopes=["read", "write"]))
acme = AuthenticatedClient(base_url=url, token=key.key)

page = search_emails.sync(client=acme, q="has:attachment", limit=1)
email = get_email.sync(page.items[0].id, client=acme)
assert email.attachments and email.subject == page.items[0].subject, email
seen, cursor = [], None
while True:
    page = search_emails.sync(client=acme, limit=5, **({"cursor": cursor} if cursor else {}))
    seen += [item.id for item in page.items]
    cursor = page.next_cursor
    if not cursor:
        break
assert len(seen) == len(set(seen)) > 5, seen
assert delete_email.sync_detailed(seen[-1], client=acme).status_code == 204
assert search_emails.sync(client=acme, limit=500).items[-1].id != seen[-1]

mailbox = create_mailbox.sync(client=acme, body=NewMailbox(address="new@acme.test", provider=MailboxProvider.FILES))
assert mailbox.id in [there.id for there in list_mailboxes.sync(client=acme).items]
assert pause_mailbox.sync(mailbox.id, client=acme).state == "paused"
webhook = create_webhook.sync(client=acme, body=NewWebhook(url="https://hook.invalid/", types=[EventType("email.received")]))
assert webhook.secret.startswith("whsec_") and len(list_webhooks.sync(client=acme).items) == 1

stranger = AuthenticatedClient(base_url=url, token="mr_tenant_nonsense")
assert search_emails.sync(client=stranger).status == 401
print("the generated client works")
