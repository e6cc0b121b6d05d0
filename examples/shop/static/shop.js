// The payment page. The server has the key, the request and the result. This script
// collects the card, opens the bank's question, and sends the same request again until the
// state is known.
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

// show shows one of: the form, the button of the approval, or what is in progress.
function show({ message = '', progress = '', approve = false }) {
  part('message').textContent = message;
  part('progress').textContent = progress;
  part('details').hidden = Boolean(progress) || approve;
  part('continue').hidden = !approve;
  if (approve) part('continue').focus();
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  show({ progress: 'Your card is being checked …' }); // hides the button: a second click does nothing
  const { error: incomplete } = await elements.submit();
  if (incomplete) return show({ message: incomplete.message });
  const { paymentMethod, error } = await stripe.createPaymentMethod({ elements });
  if (error) return show({ message: error.message });
  return pay({ email: part('email').value, payment_method: paymentMethod.id, amount });
});

// pay sends the request until the payment has ended or the customer must act. The server
// ignores the card if it has a request of this basket already.
async function pay(request) {
  for (let asked = false; ;) {
    show({ progress: 'Your payment is in progress. Please wait …' });
    const result = await send(request);
    if (result.state === 'basket') return show({ message: result.message });
    if (result.state !== 'paying') return location.reload(); // the server's page says what it is
    if (result.client_secret && asked) {
      return show({ message: 'Your bank has not approved the payment yet. Nothing was charged so far.', approve: true });
    }
    if (result.client_secret) {
      show({ progress: 'Your bank asks you to approve the payment.' });
      // Its result is not trusted: the next response of the server is the result.
      await stripe.handleNextAction({ clientSecret: result.client_secret });
      asked = true;
    } else {
      show({ progress: 'We do not know yet whether your payment succeeded. Please do not pay again: we keep asking …' });
      await pause(2);
    }
  }
}

// send repeats the request until it gets the server's state. A lost response is no reason
// for a new purchase, and no reason to say that the payment failed.
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
