// The requests of orval's client.
export const server = { baseUrl: '', headers: {} };

export async function fetcher<T>(path: string, init: RequestInit): Promise<T> {
  const response = await fetch(server.baseUrl + path, { ...init, headers: { ...init.headers, ...server.headers } });
  return { data: await response.json(), status: response.status, headers: response.headers } as T;
}
