// The payment page. The server stores the key, the request and the result. This script
// collects the card, opens the bank's approval, and repeats its request until the server
// reports how the payment ended.
const form = document.getElementById('payment');
const { key, currency, amount } = form.dataset;
const part = (id) => document.getElementById(id);
if (!window.Stripe) {
  part('message').textContent = 'Stripe cannot be reached. Please reload this page to continue.';
  part('details').hidden = true;
}
const stripe = Stripe(key);
const elements = stripe.elements({
  mode: 'payment', currency, amount: Number(amount), paymentMethodCreation: 'manual', paymentMethodTypes: ['card'],
});
elements.create('payment').mount('#card');

const pause = (seconds) => new Promise((done) => { setTimeout(done, 1000 * seconds); });

// show shows the form, the approval button or the progress, and hides the others.
function show({ message = '', progress = '', approve = false }) {
  part('message').textContent = message;
  part('progress').textContent = progress;
  part('details').hidden = Boolean(progress) || approve;
  part('continue').hidden = !approve;
  if (approve) part('continue').focus();
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  show({ progress: 'Your card is being checked …' }); // hides the button, so that there is no second click
  const { error: incomplete } = await elements.submit();
  if (incomplete) return show({ message: incomplete.message });
  const { paymentMethod, error } = await stripe.createPaymentMethod({ elements });
  if (error) return show({ message: error.message });
  return pay({ email: part('email').value, payment_method: paymentMethod.id, amount });
});

// pay sends the request until the payment has ended or the customer must act. If the server
// already has a request for this basket, it ignores this card.
async function pay(request) {
  for (let asked = false; ;) {
    show({ progress: 'Your payment is in progress. Please wait …' });
    const result = await send(request);
    if (result.state === 'basket') return show({ message: result.message });
    if (result.state !== 'paying') return location.reload(); // the reloaded page shows the state
    if (result.client_secret && asked) {
      return show({ message: 'Your bank has not approved the payment yet. Nothing was charged so far.', approve: true });
    }
    if (result.client_secret) {
      show({ progress: 'Your bank asks you to approve the payment.' });
      // The result in the browser is not trusted. Only the server's next response counts.
      await stripe.handleNextAction({ clientSecret: result.client_secret });
      asked = true;
    } else {
      show({ progress: 'We do not know yet whether your payment succeeded. Please do not pay again: we keep asking …' });
      await pause(2);
    }
  }
}

// send repeats the request until the server returns a state. A lost response is neither a
// reason for a new purchase nor a reason to report that the payment failed.
async function send(request) {
  for (let wait = 1; ; wait = Math.min(2 * wait, 15)) {
    try {
      const response = await fetch(`${location.pathname}/pay`, { method: 'POST', redirect: 'error', body: new URLSearchParams(request) });
      const result = response.ok && await response.json();
      if (result.state) return result;
    } catch { /* no response, or not a complete one */ }
    show({ progress: 'The connection to the shop is lost. We try again, and you are charged at most once …' });
    await pause(wait);
  }
}

part('continue').addEventListener('click', () => pay({}));
if (form.dataset.state === 'paying') pay({}); // the page was reloaded, or opened in another tab
addEventListener('pageshow', (event) => { if (event.persisted) location.reload(); }); // after the back button
