// A fake of Stripe.js: the Payment Element is a list of test cards, and the bank's question
// is a dialog. It has the functions that a page needs if its server confirms the payment.
(() => {
  const server = new URL(document.currentScript.src).origin;
  const cards = [
    ['pm_card_visa', '4242 4242 4242 4242', 'is charged'],
    ['pm_card_visa_chargeDeclinedInsufficientFunds', '4000 0000 0000 9995', 'is declined'],
    ['pm_card_threeDSecure2Required', '4000 0000 0000 3220', 'needs your approval'],
    ['pm_card_authenticationRequiredChargeDeclinedInsufficientFunds', '4000 0082 6000 3178', 'needs your approval, and is declined'],
  ];
  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  function elements({ mode, amount, currency, paymentMethodCreation }) {
    if (mode !== 'payment' || !Number.isInteger(amount) || !currency || paymentMethodCreation !== 'manual') {
      throw new Error('the fake Stripe.js supports mode payment with paymentMethodCreation manual');
    }
    const form = element('fieldset', {}, element('legend', {}, 'Test card'), ...cards.map(([value, number, effect], i) => element('p', {},
      element('label', {}, element('input', { type: 'radio', name: 'card', value, checked: i === 0 }), ` ${number} ${effect}`))));
    return {
      create: () => ({ mount: (place) => document.querySelector(place).append(form) }),
      submit: async () => ({}),
      chosen: () => form.querySelector(':checked').value,
    };
  }

  // The customer approves, declines or closes the dialog, which leaves the question open.
  const ask = () => new Promise((answer) => {
    const button = (name, decision) => element('button', { type: 'button', onclick: () => dialog.close(decision) }, name);
    const dialog = element('dialog', { ariaLabel: 'Your bank', onclose: () => { dialog.remove(); answer(dialog.returnValue); } },
      element('p', {}, 'This is a fake bank. Do you approve this payment?'), button('Approve', 'approve'), ' ', button('Decline', 'decline'));
    document.body.append(dialog);
    dialog.showModal();
  });

  async function handleNextAction({ clientSecret }) {
    const decision = await ask();
    if (!decision) return { error: { message: 'The customer closed the window.' } };
    try {
      const response = await fetch(`${server}/customer/${clientSecret.split('_secret_')[0]}/${decision}`, {
        method: 'POST', body: new URLSearchParams({ client_secret: clientSecret }),
      });
      if (response.ok && decision === 'approve') return { paymentIntent: {} };
      return { error: { message: 'The payment is not approved.' } };
    } catch {
      return { error: { message: 'Stripe cannot be reached.' } };
    }
  }

  window.Stripe = (key) => {
    if (!key.startsWith('pk_test_')) throw new Error('the fake Stripe.js accepts only a publishable test key, pk_test_…');
    return {
      elements,
      createPaymentMethod: async (options) => ({ paymentMethod: { id: options.elements.chosen() } }),
      handleNextAction,
    };
  };
})();
